# Device memory of the best plans with and without offloading, by number of GPUs. Blocks 0 (without) and 1 (with): place,
# bytes of the largest GPU in unit, their text, those of all GPUs, plan. Block 2: place, what a GPU has. without, with: 1 if there are any; numbers: of
# GPUs, as words; texts_fit: 1 if there is room for all texts; most: the highest bar; unit; limits: 1 if block 2
# has any; what: model, batch, cluster; two_lines: 1 if any plan's text has them; plan_key: what a plan's text says; source: the file.

height = 640
load folder."/style.gp"

array names[2] = ["best plan without offloading", "best plan with offloading"]
array colours[2] = [blue, red]
first = without ? 1 : 2
last = with ? 2 : 1
both = without && with

width = both ? 0.4 : 0.6
centre(place, i) = place + (both ? (i - 1.5) * (width + 0.02) : 0)

set label 100 source at screen 0.99,0.985 right textcolor rgb grey font tiny
set title "Device memory of the largest GPU, best plans".what font (strlen(what) > 30 ? points(13) : big)
set xlabel "GPUs"
if (texts_fit) set label 101 "in each bar: ".plan_key at graph 0.5,1 center offset 0,1 textcolor rgb grey font small
set title offset 0,1.2
set tmargin 5
set bmargin 6
set format y "%g ".unit
set xrange [0.4:words(numbers) + 0.6]
set yrange [0:most * 1.16]
set border 1
set grid ytics noxtics
set tics scale 0
set xtics ()
do for [n=1:words(numbers)] { set xtics add (word(numbers, n) n) }
set key bmargin center Left reverse horizontal maxrows 1 width 2
set style fill solid 0.92 noborder

plot for [i=first:last] data index i - 1 using (centre($1, i)):2:(width) with boxes fc rgb colours[i] title names[i], \
     data index 2 using ($1 - 0.5):2:(1):(0) with vectors nohead lw 2 lc rgb ink notitle, \
     for [i=first:last] data index i - 1 using (centre($1, i)):2:3 with labels boxed offset 0,(texts_fit ? 1.7 : 0.7) textcolor rgb ink font (texts_fit ? small : tiny) notitle, \
     for [i=first:last*texts_fit] data index i - 1 using (centre($1, i)):2:4 with labels boxed offset 0,0.7 textcolor rgb grey font tiny notitle, \
     for [i=first:last*texts_fit] data index i - 1 using (centre($1, i)):(0):5 with labels offset 0,(two_lines ? 1.2 : 0.7) textcolor rgb "white" font tiny notitle, \
     for [l=1:limits] keyentry with lines lw 2 lc rgb ink title "what a GPU has"
