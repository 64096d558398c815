# What the figures with a bar for each report share: the height, the axes and the texts beside the bars. bars: how many; bar_1,
# how_1, saving_1 ...: the three lines of each.

height = int(bars * 66 + 230 > 2000 ? 2000 : (bars * 66 + 230 < 420 ? 420 : bars * 66 + 230))
load folder."/style.gp"

set yrange [bars + 0.6:0.4]
set border 1
set grid xtics noytics
unset ytics
set lmargin at screen 0.33
set rmargin at screen 0.955
do for [i=1:bars] {
        set label (3 * i) value(sprintf("bar_%d", i)) at graph 0, first i offset -1,0.8 right textcolor rgb ink font small
        set label (3 * i + 1) value(sprintf("how_%d", i)) at graph 0, first i offset -1,-0.05 right textcolor rgb grey font tiny
        set label (3 * i + 2) value(sprintf("saving_%d", i)) at graph 0, first i offset -1,-0.8 right textcolor rgb grey font tiny
}
set xtics font small
set style fill solid 0.92 border rgb "white"
before(c) = c <= 1 ? 0 : before(c - 1) + column(c - 1) # each category begins where those before it end
