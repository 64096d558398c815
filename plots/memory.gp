# Device memory of the largest rank. A row a bar: one column a category, then the sum. categories, category_1 ... (empty:
# unused by all); bars, bar_1 ... (two lines parted by |); most: the longest bar; unit.

height = int(bars * 62 + 210 > 2000 ? 2000 : (bars * 62 + 210 < 420 ? 420 : bars * 62 + 210))
load folder."/style.gp"

set title "Device memory of the largest rank"
set format x "%g ".unit
set xrange [0:most * 1.12]
set yrange [bars + 0.6:0.4]
set border 1
set grid xtics noytics
unset ytics
set lmargin 30
do for [i=1:bars] {
        both = value(sprintf("bar_%d", i))
        cut = strstrt(both, "|")
        set label (2 * i) both[1:cut-1] at graph 0, first i offset -1,0.45 right textcolor rgb ink font small
        set label (2 * i + 1) both[cut+1:*] at graph 0, first i offset -1,-0.45 right textcolor rgb grey font tiny
}
set key bmargin center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font small
set style fill solid 0.92 border rgb "white"
thickness = 0.66

# Each category begins where those before it end.
before(c) = c <= 1 ? 0 : before(c - 1) + column(c - 1)
name(c) = value(sprintf("category_%d", c))

plot for [c=1:categories] data using (before(c) + column(c) / 2):($0 + 1):(column(c) / 2):(thickness / 2) \
             with boxxyerror fc rgb colour(c) notitle, \
     for [c=1:categories] keyentry with boxes fc rgb (strlen(name(c)) ? colour(c) : 0xFFFFFF) title name(c), \
     data using (column(categories + 1)):($0 + 1):(sprintf("%.3g %s", column(categories + 1), unit)) \
             with labels left offset 0.8,0 textcolor rgb ink notitle
