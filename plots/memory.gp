# Memory of the largest rank. Blocks 0 (device) and 1 (host, if host is 1): a row a bar, with one column a category, then the
# sum, its text, and where that begins. Block 2: what a device has, a row a bar (NaN: not known, or far beyond the bars). categories: columns;
# used: the numbers of those that have bytes, as words; category_1 ...; bars and their texts (bars.gp); host; limits: 1 if
# block 2 has any; most: the longest bar, or limit; unit.

load folder."/bars.gp"

set title host ? "Memory of the largest rank: device, and host (lighter)" : "Device memory of the largest rank"
set format x "%g ".unit
set xrange [0:most * (host ? 1.28 : 1.18)]
set key bmargin center horizontal Left reverse maxrows (words(used) + limits > 6 ? 2 : 1) samplen 1.2 width -0.5 font small

# With host memory, its bar stands below that of the device.
array thickness[2] = [host ? 0.42 : 0.66, 0.26]
array middle[2] = [host ? -0.14 : 0, 0.22]
name(c) = value("category_".c)

plot for [c=1:categories] data index 0 using (before(c) + column(c) / 2):($0 + 1 + middle[1]):(column(c) / 2):(thickness[1] / 2) \
             with boxxyerror fc rgb memory_colour(name(c)) notitle, \
     for [c=1:categories*host] data index 1 using (before(c) + column(c) / 2):($0 + 1 + middle[2]):(column(c) / 2):(thickness[2] / 2) \
             with boxxyerror fc rgb lighter(memory_colour(name(c)), 0.56) notitle, \
     data index 2 using 1:($0 + 0.55):(0):(0.9) with vectors nohead lw 2 lc rgb ink notitle, \
     for [c in used] keyentry with boxes fc rgb memory_colour(name(c)) title name(c), \
     for [l=1:limits] keyentry with lines lw 2 lc rgb ink title "what a device has", \
     for [space=1:host+1] data index space - 1 using (column(categories + 3)):($0 + 1 + middle[space]):(stringcolumn(categories + 2)) \
             with labels left boxed offset 0.8,0 textcolor rgb (space == 1 ? ink : grey) font (host ? small : "") notitle
