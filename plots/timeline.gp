# Who did what when in one batch. Block 0: begin, end (ms), top, bottom, look, text. Block 1: row, name, 1 for a compute
# lane. heading; rows: their height; milliseconds; looks: the numbers of those in use, as words.

row_pixels = rows > 24 ? 30 : 60
height = int(rows * row_pixels + 190 > 2000 ? 2000 : (rows * row_pixels + 190 < 420 ? 420 : rows * row_pixels + 190))
load folder."/style.gp"

set title heading
set format x "%g ms"
set xrange [0:milliseconds]
set yrange [rows + 0.1:-0.1]
set border 1
unset ytics
set grid xtics noytics
set lmargin 24
set key bmargin center horizontal Left reverse maxrows (words(looks) > 7 ? 2 : 1) samplen 1.2 width -0.5 font small
set style fill solid 0.92 noborder

# A hair of white between boxes, and nothing so short that it cannot be seen.
gap = milliseconds * 0.0005
half(begin, end) = (end - begin) / 2 - gap > gap ? (end - begin) / 2 - gap : gap

plot data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):(half($1, $2)):(($4 - $3) / 2):(look_colours[int($5)]) \
             with boxxyerror fc rgb variable notitle, \
     for [g in looks] keyentry with boxes fc rgb look_colours[int(g)] title look_names[int(g)], \
     data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):6 with labels textcolor rgb "white" font small notitle, \
     data index 1 using (0):($3 > 0 ? $1 : NaN):2 with labels right offset -1,0 textcolor rgb ink font small notitle, \
     data index 1 using (0):($3 > 0 ? NaN : $1):2 with labels right offset -1,0 textcolor rgb grey font tiny notitle
