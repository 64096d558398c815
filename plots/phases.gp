# What a batch's time is made of. A row a bar: compute, what shards do together, bubble, all-reduce, optimizer; their sum; its
# text. parts: columns; used: the numbers of those that occur, as words; bars and their texts (bars.gp); most: the longest bar;
# unit.

load folder."/bars.gp"

array names[5] = ["compute (mean of the ranks)", "shards together", "bubble, messages, waits", "all-reduce", "optimizer"]
array colours[5] = [compute, collectives_of_shards, bubble, gradients, optimizer]
set title "Time of a batch, by phase"
set format x "%g ".unit
set xrange [0:most * 1.5]
set key bmargin center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font small

plot for [c=1:parts] data using (before(c) + column(c) / 2):($0 + 1):(column(c) / 2):(0.33) with boxxyerror fc rgb colours[c] notitle, \
     for [c in used] keyentry with boxes fc rgb colours[int(c)] title names[int(c)], \
     data using (column(parts + 1)):($0 + 1):(stringcolumn(parts + 2)) with labels left boxed offset 0.8,0 textcolor rgb ink font small notitle
