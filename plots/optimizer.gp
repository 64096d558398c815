# The optimizer phase of one rank. Block 0: row, lane, how long it was busy, share of the phase. Block 1: begin, end,
# row, look, text. heading, summary; rows; length, of the phase, in unit (ms or s); looks: the numbers of those in use, as words.

height = int(rows * 84 + 215)
load folder."/style.gp"

set title heading offset 0,1.3
set label 1 summary at graph 0.5,1 center offset 0,0.9 textcolor rgb grey
set format x "%g ".unit
set xrange [0:length]
set yrange [rows - 0.4:-0.6]
set xlabel "numbers: the bucket that is fetched, updated and written back; the chunk that is all-reduced" textcolor rgb grey font small
set border 1
unset ytics
set grid xtics noytics
set lmargin 17
set rmargin 16
set tmargin 5
set bmargin 6
set key bmargin center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font small
set style fill solid 0.92 noborder

# A hair of white between boxes, and nothing so short that it cannot be seen.
gap = length * 0.0005
half(begin, end) = (end - begin) / 2 - gap > gap ? (end - begin) / 2 - gap : gap

plot data index 1 using (($1 + $2) / 2):3:(half($1, $2)):(0.4):(look_colours[int($4)]) with boxxyerror fc rgb variable notitle, \
     for [g in looks] keyentry with boxes fc rgb look_colours[int(g)] title look_names[int(g)], \
     data index 1 using (($1 + $2) / 2):3:5:(text_on(look_colours[int($4)])) with labels textcolor rgb variable font small notitle, \
     data index 0 using (0):1:2 with labels right offset -1,0 textcolor rgb ink font small notitle, \
     data index 0 using (length):1:3 with labels left offset 1,0.6 textcolor rgb ink font small notitle, \
     data index 0 using (length):1:4 with labels left offset 1,-0.6 textcolor rgb grey font small notitle
