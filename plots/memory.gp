# Device memory of the largest rank. A row a bar: one column a category, then the sum. categories, category_1 ... (empty:
# unused by all); bars, bar_1 ... (lines parted by |); most: the tallest bar; unit.

load folder."/style.gp"

set title "Device memory of the largest rank"
set ylabel unit
set yrange [0:most * 1.1]
set xrange [0.4:bars + 0.6]
set grid ytics noxtics
set xtics scale 0
unset xtics
# Room for up to four short lines under each bar; with many bars only the first two.
lines = bars <= 8 ? 4 : 2
set bmargin lines + 2
do for [i=1:bars] {
        text = value(sprintf("bar_%d", i))
        label = ""
        do for [n=1:lines] {
                cut = strstrt(text, "|")
                label = label.(n > 1 ? "\n" : "").(cut ? text[1:cut-1] : text)
                text = cut ? text[cut+1:*] : ""
        }
        set label i label at first i, graph 0 offset 0,-1 center textcolor rgb ink font (bars <= 4 ? ",12" : ",9.5")
}
set key outside right center vertical invert Left reverse
set style fill solid 0.92 border rgb "white"
width = 0.62

# Each category stands on the sum of those before it.
below(c) = c <= 1 ? 0 : below(c - 1) + column(c - 1)
shown(c) = strlen(value(sprintf("category_%d", c))) > 0

plot for [c=1:categories] data using ($0 + 1):(below(c) + column(c) / 2):(width / 2):(column(c) / 2) \
             with boxxyerror fc rgb colour(c) notitle, \
     for [c=1:categories] keyentry with boxes fc rgb (shown(c) ? colour(c) : 0xFFFFFF) title value(sprintf("category_%d", c)), \
     data using ($0 + 1):(column(categories + 1)):(sprintf("%.3g %s", column(categories + 1), unit)) \
             with labels offset 0,0.8 textcolor rgb ink notitle
