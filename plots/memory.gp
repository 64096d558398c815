# Memory of the largest rank. Blocks 0 (device) and 1 (host, if host is 1): a row a bar, with one column a category, then the
# sum and its text. categories: columns; used: the numbers of those that have bytes, as words; category_1 ...; bars, bar_1
# ... (two lines parted by |); host; most: the longest bar; unit.

height = int(bars * 62 + 210 > 2000 ? 2000 : (bars * 62 + 210 < 420 ? 420 : bars * 62 + 210))
load folder."/style.gp"

set title host ? "Memory of the largest rank: device, and host (lighter)" : "Device memory of the largest rank"
set format x "%g ".unit
set xrange [0:most * (host ? 1.2 : 1.12)]
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
set key bmargin center horizontal Left reverse maxrows (words(used) > 7 ? 2 : 1) samplen 1.2 width -0.5 font small
set style fill solid 0.92 border rgb "white"

# With host memory, its bar stands below that of the device.
array thickness[2] = [host ? 0.42 : 0.66, 0.26]
array middle[2] = [host ? -0.14 : 0, 0.22]
lighter(rgb) = rgb + 0x90000000

# Each category begins where those before it end.
before(c) = c <= 1 ? 0 : before(c - 1) + column(c - 1)
name(c) = value("category_".c)

plot for [c=1:categories] data index 0 using (before(c) + column(c) / 2):($0 + 1 + middle[1]):(column(c) / 2):(thickness[1] / 2) \
             with boxxyerror fc rgb colour(c) notitle, \
     for [c=1:categories*host] data index 1 using (before(c) + column(c) / 2):($0 + 1 + middle[2]):(column(c) / 2):(thickness[2] / 2) \
             with boxxyerror fc rgb lighter(colour(c)) notitle, \
     for [c in used] keyentry with boxes fc rgb colour(c) title name(c), \
     for [space=1:host+1] data index space - 1 using (column(categories + 1)):($0 + 1 + middle[space]):(stringcolumn(categories + 2)) \
             with labels left offset 0.8,0 textcolor rgb (space == 1 ? ink : grey) font (host ? small : "") notitle
