# Who did what when in one batch. Block 0: begin, end (ms), top, bottom, group, text. Block 1: row, name, 1 for a compute
# lane. heading; rows: their height; milliseconds; all_lanes.

height = rows * 60 + 190 > 2000 ? 2000 : (rows * 60 + 190 < 420 ? 420 : int(rows * 60 + 190))
load folder."/style.gp"

array group_colours[7] = [blue, orange, green, purple, 0x6C7A89, yellow, 0xC9CED6]
array group_names[7] = ["forward", "backward", "optimizer", "all-reduce", "message", "load", "waiting for a message"]
groups = all_lanes ? 7 : 3

set title heading
set xlabel "ms"
set xrange [0:milliseconds]
set yrange [rows + 0.1:-0.1]
set border 1
unset ytics
set grid xtics noytics
set lmargin 24
set key outside top right horizontal maxrows 1 samplen 1.2 width 1
set style fill solid 0.9 border rgb "white"

plot data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):(($2 - $1) / 2):(($4 - $3) / 2):(group_colours[int($5)]) \
             with boxxyerror fc rgb variable notitle, \
     for [g=1:groups] keyentry with boxes fc rgb group_colours[g] title group_names[g], \
     data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):6 with labels textcolor rgb "white" font ",10" notitle, \
     data index 1 using (0):($3 ? $1 : NaN):2 with labels right offset -1,0 textcolor rgb ink font ",11" notitle, \
     data index 1 using (0):($3 ? NaN : $1):2 with labels right offset -1,0 textcolor rgb grey font ",8.5" notitle
