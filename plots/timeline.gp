# Who did what when in one batch. Block 0: begin, end (in unit), top, bottom, look, chunk, text, its size (0: none). Block 1:
# row, name, 1 for a compute lane. heading, summary; rows: their height; begin, end: of what is shown; shares: 1 if boxes are
# shares of a step of the time; chunks; looks: the numbers of those in use, as words.

row_pixels = rows > 24 ? 30 : 60
height = int(rows * row_pixels + 215 > 2000 ? 2000 : (rows * row_pixels + 215 < 420 ? 420 : rows * row_pixels + 215))
load folder."/style.gp"

heading_font = strlen(heading) > 80 ? points(12) : big
set label 2 heading at screen 0.5, graph 1 center offset 0,2.6 font heading_font textcolor rgb ink
set label 1 summary at screen 0.5, graph 1 center offset 0,0.9 textcolor rgb grey font small
set format x "%g ".unit
set xrange [begin:end]
set yrange [rows + 0.1:-0.1]
set border 1
unset ytics
set grid xtics noytics
set lmargin at screen 0.22
set rmargin at screen 0.953
set tmargin 5
set bmargin 5
key_font = words(looks) > 7 ? tiny : small
set key at screen 0.5, screen 22.0 / height center center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font key_font
set style fill solid (shares ? 1 : 0.92) noborder

# A hair of white between boxes, and nothing so short that it cannot be seen.
gap = shares ? 0 : (end - begin) * 0.0005
half(begin, end) = (end - begin) / 2 - gap > gap ? (end - begin) / 2 - gap : gap
by_chunk(look) = look <= 4 && chunks > 1
box_colour(look, chunk) = by_chunk(look) ? lighter(look_colours[look], 0.65 * chunk / (chunks - 1)) : look_colours[look]
array fonts[4] = [small, tiny, tiny, minute]
y_of(size, wanted, y) = size == wanted ? y : NaN

plot data index 0 using (($1 + $2) / 2):(($3 + $4) / 2):(half($1, $2)):(($4 - $3) / 2):(box_colour(int($5), int($6))) \
             with boxxyerror fc rgb variable notitle, \
     for [g in looks] keyentry with boxes fc rgb look_colours[int(g)] title look_names[int(g)], \
     for [size=1:2] data index 0 using (($1 + $2) / 2):(y_of($8, size, ($3 + $4) / 2)):7:(text_on(box_colour(int($5), int($6)))) \
             with labels textcolor rgb variable font fonts[size] notitle, \
     for [size=3:4] data index 0 using (($1 + $2) / 2):(y_of($8, size, ($3 + $4) / 2)):7:(text_on(box_colour(int($5), int($6)))) \
             with labels rotate by 90 textcolor rgb variable font fonts[size] notitle, \
     data index 1 using (begin):($3 > 0 ? $1 : NaN):2 with labels right offset -1,0 textcolor rgb ink font (row_pixels < 60 ? tiny : small) notitle, \
     data index 1 using (begin):($3 > 0 ? NaN : $1):2 with labels right offset -1,0 textcolor rgb grey font tiny notitle
