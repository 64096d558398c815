# Who did what when in one batch. Block 0: begin, end (ms), top, bottom, group, text. Block 1: row, name, 1 for a compute
# lane. heading; rows: their height; milliseconds; all_lanes.

row_pixels = rows > 24 ? 30 : 60
height = int(rows * row_pixels + 190 > 2000 ? 2000 : (rows * row_pixels + 190 < 420 ? 420 : rows * row_pixels + 190))
load folder."/style.gp"

array group_colours[7] = [blue, orange, green, purple, 0x6C7A89, yellow, 0xC9CED6]
array group_names[7] = ["forward", "backward", "optimizer", "all-reduce", "message", "load", "waiting"]
groups = all_lanes ? 7 : 3

set title heading
set format x "%g ms"
set xrange [0:milliseconds]
set yrange [rows + 0.1:-0.1]
set border 1
unset ytics
set grid xtics noytics
set lmargin 24
set key bmargin center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font small
set style fill solid 0.92 noborder

# A hair of white between boxes, and nothing so short that it cannot be seen.
gap = milliseconds * 0.0005
half(begin, end) = (end - begin) / 2 - gap > gap ? (end - begin) / 2 - gap : gap

plot data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):(half($1, $2)):(($4 - $3) / 2):(group_colours[int($5)]) \
             with boxxyerror fc rgb variable notitle, \
     for [g=1:groups] keyentry with boxes fc rgb group_colours[g] title group_names[g], \
     data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):6 with labels textcolor rgb "white" font small notitle, \
     data index 1 using (0):($3 > 0 ? $1 : NaN):2 with labels right offset -1,0 textcolor rgb ink font small notitle, \
     data index 1 using (0):($3 > 0 ? NaN : $1):2 with labels right offset -1,0 textcolor rgb grey font tiny notitle
