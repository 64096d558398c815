# What a batch's time is made of. A row a bar: seconds of compute, what shards do together, bubble, all-reduce,
# optimizer; their sum; its text.
# bars, bar_1 ... (two lines parted by |); most: the longest bar.

height = int(bars * 62 + 210 > 2000 ? 2000 : (bars * 62 + 210 < 420 ? 420 : bars * 62 + 210))
load folder."/style.gp"

parts = 5
array names[5] = ["compute (mean of the ranks)", "shards together", "bubble, messages, waits", "all-reduce", "optimizer"]
# Shades of the same colours as elsewhere; shards together are communication, as all-reduces are.
array shade[5] = [1, 5, 2, 3, 4]
set title "Time of a batch, by phase"
set format x "%g s"
set xrange [0:most * 1.34]
set yrange [bars + 0.6:0.4]
set border 1
set grid xtics noytics
unset ytics
set lmargin 34
do for [i=1:bars] {
        both = value(sprintf("bar_%d", i))
        cut = strstrt(both, "|")
        set label (2 * i) both[1:cut-1] at graph 0, first i offset -1,0.45 right textcolor rgb ink font small
        set label (2 * i + 1) both[cut+1:*] at graph 0, first i offset -1,-0.45 right textcolor rgb grey font tiny
}
set key bmargin center horizontal Left reverse maxrows 1 samplen 1.2 width -0.5 font small
set style fill solid 0.92 border rgb "white"
before(c) = c <= 1 ? 0 : before(c - 1) + column(c - 1)

plot for [c=1:parts] data using (before(c) + column(c) / 2):($0 + 1):(column(c) / 2):(0.33) with boxxyerror fc rgb colour(shade[c]) notitle, \
     for [c=1:parts] keyentry with boxes fc rgb colour(shade[c]) title names[c], \
     data using (column(parts + 1)):($0 + 1):(stringcolumn(parts + 2)) with labels left offset 0.8,0 textcolor rgb ink font small notitle
