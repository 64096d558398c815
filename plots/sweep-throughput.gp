# Tokens a second of the best plans with and without offloading, by number of GPUs. Blocks 0 (without) and 1 (with):
# GPUs, tokens a second, percent of peak, 1 if above the other of its pair, plan. Block 2 (if gains is 1): GPUs, tokens a
# second of the faster, gain. Block 3 (if others is 1): GPUs, tokens a second, 1 with offloading, of the other plans.
# without, with: 1 if there are any; numbers: of GPUs, as words; others_title; unit; peak_known; fewest, most GPUs;
# bottom, top: what is drawn, in unit; what: model, batch, cluster; two_lines: 1 if any plan's text has them; gains_fit,
# plans_fit: 1 if there is room for their texts; plan_key: what a plan's text says;
# source: the file.

height = peak_known ? 960 : 660
load folder."/style.gp"

array names[2] = ["best plan without offloading", "best plan with offloading"]
array colours[2] = [blue, red]
array shapes[2] = [5, 7]
first = without ? 1 : 2
last = with ? 2 : 1
faint(rgb) = rgb + 0xA0000000

# Room on the left and right for the texts of the outermost points.
range = most > fewest ? 1.0 * most / fewest : 4
set logscale x 2
set xrange [fewest / range ** (two_lines ? 0.22 : 0.15) : most * range ** 0.15]
set xtics ()
do for [n in numbers] { set xtics add (n n + 0) }
aside(offload) = range ** (offload > 0 ? 0.006 : -0.006) # dots of the two kinds stand side by side

explanation = (plans_fit ? "at each point: ".plan_key : "").\
              (plans_fit && gains ? ";  " : "").(gains_fit && gains ? "in black: the gain of offloading" : "")

# Texts above a point end there, texts below begin there: the lines go up to the right.
above(text, is) = is > 0 ? text : ""
below(text, is) = is > 0 ? "" : text

set label 100 source at screen 0.99,0.985 right textcolor rgb grey font tiny
set key right bottom Left reverse
set lmargin at screen 0.09
set rmargin at screen 0.98
set tmargin at screen (peak_known ? 0.91 : 0.87)
if (peak_known) {
        set multiplot
        set bmargin at screen 0.45
} else {
        set xlabel "GPUs"
}

# Not an iteration from 1 to 0, which reads its data once nevertheless and complains if there are none.
others_first = others ? "data index 3 using ($1 * aside($3)):2:(faint(colours[int($3) + 1])) with points pt 7 ps dot(0.8) lc rgb variable notitle, " : ""
set title "Throughput by number of GPUs".what font (strlen(what) > 30 ? points(13) : big) offset 0,(format eq "svg" ? 0.6 : 1.3)
set label 101 explanation at graph 0.5,1 center offset 0,1 textcolor rgb grey font small
set ylabel unit
set logscale y 2
set yrange [bottom : top * (top / bottom) ** 0.16]
plot @others_first for [i=first:last] data index i - 1 using 1:2 with linespoints pt shapes[i] ps dot(1.6) lw 2 lc rgb colours[i] title names[i], \
     for [i=1:others] keyentry with points pt 7 ps dot(0.8) lc rgb faint(ink) title others_title, \
     for [i=first:plans_fit*last] data index i - 1 using 1:2:(above(stringcolumn(5), $4)) with labels right offset -1,(two_lines ? 1.3 : 0.8) textcolor rgb colours[i] font small notitle, \
     for [i=first:plans_fit*last] data index i - 1 using 1:2:(below(stringcolumn(5), $4)) with labels left offset 1,(two_lines ? -1.3 : -0.8) textcolor rgb colours[i] font small notitle, \
     for [i=1:gains_fit*gains] data index 2 using 1:2:3 with labels right offset -0.9,(plans_fit ? (two_lines ? 2.9 : 1.8) : 0.7) textcolor rgb ink notitle

if (peak_known) {
        unset label 100
        unset label 101
        set tmargin at screen 0.34
        set bmargin at screen 0.09
        unset key
        unset logscale y
        set title "Share of the peak" offset 0,0 font big
        set xlabel "GPUs" offset 0,0.3
        set ylabel "% of peak flop/s"
        set yrange [0:*]
        set offsets 0, 0, graph 0.12, 0
        plot for [i=first:last] data index i - 1 using 1:3 with linespoints pt shapes[i] ps dot(1.6) lw 2 lc rgb colours[i], \
             for [i=first:last] data index i - 1 using 1:3:(above(sprintf("%.1f", $3), $4)) with labels offset 0,1 textcolor rgb colours[i] font small, \
             for [i=first:last] data index i - 1 using 1:3:(below(sprintf("%.1f", $3), $4)) with labels offset 0,-1 textcolor rgb colours[i] font small
        unset multiplot
}
