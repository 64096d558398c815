# Tokens a second and percent of peak by number of GPUs. Two blocks a series: all points, and the fastest of each number
# of GPUs. Columns: GPUs, tokens a second, the same if the smallest run scaled perfectly, percent of peak.
# series, series_1 ...; line_1 ...: 1 if it is of several numbers of GPUs; unit; peak_known; fewest, most GPUs.

load folder."/style.gp"

wide = most > 24 * fewest
if (wide) set logscale x 2
margin = wide ? 1.15 : 0.05 * (most - fewest) + 0.05 * most
set xrange [wide ? fewest / margin : fewest - margin : wide ? most * margin : most + margin]
set xtics ()
do for [i=0:series-1] {
        stats data index 2 * i + 1 using 1 nooutput
        do for [row=0:int(STATS_records)-1] {
                stats data index 2 * i + 1 every ::row::row using 1 nooutput
                set xtics add (sprintf("%d", STATS_min) STATS_min)
        }
}
set key left top Left reverse
set yrange [0:*]
lines = ""
singles = ""
do for [i=1:series] { if (value("line_".i)) { lines = lines." ".i } else { singles = singles." ".i } }
perfect = words(lines) > 0
at(list, n) = n > words(list) ? 1 : int(word(list, n)) # gnuplot looks at an iteration from 1 to 0, too
# The key stands above all points.
room = (peak_known ? 0.085 : 0.05) * (series + perfect)
set offsets 0, 0, graph (0.06 + room / (1 - room)), 0
if (peak_known) {
        set multiplot layout 2,1 margins 0.09,0.97,0.1,0.9 spacing 0.17
} else {
        set xlabel "GPUs"
}

set title "Throughput by number of GPUs"
set ylabel unit
plot for [i=0:series-1] data index 2 * i + 1 using 1:3 with lines dt (8,6) lw 1 lc rgb colour(i + 1) notitle, \
     for [i=0:series-1] data index 2 * i + 1 using 1:2 with lines lw 2 lc rgb colour(i + 1) notitle, \
     for [i=0:series-1] data index 2 * i using 1:2 with points pt shape(i + 1) ps dot(1.6) lc rgb colour(i + 1) notitle, \
     for [n=1:words(lines)] keyentry with linespoints pt shape(at(lines, n)) ps dot(1.6) lw 2 lc rgb colour(at(lines, n)) \
             title value("series_".at(lines, n)), \
     for [n=1:words(singles)] keyentry with points pt shape(at(singles, n)) ps dot(1.6) lc rgb colour(at(singles, n)) \
             title value("series_".at(singles, n)), \
     for [i=1:perfect] keyentry with lines dt (8,6) lw 1 lc rgb grey title "if the smallest run scaled perfectly"

if (peak_known) {
        set title "Share of the peak"
        set xlabel "GPUs"
        set ylabel "% of peak flop/s"
        unset key
        set offsets 0, 0, graph 0.12, 0
        # Of two series, one has its numbers above and the other below.
        plot for [i=0:series-1] data index 2 * i + 1 using 1:4 with linespoints pt shape(i + 1) ps dot(1.6) lw 2 lc rgb colour(i + 1), \
             for [i=0:series-1] data index 2 * i + 1 using 1:4:(sprintf("%.1f", $4)) with labels offset 0,(i % 2 ? -1.2 : 1.2) textcolor rgb colour(i + 1)
        unset multiplot
}
