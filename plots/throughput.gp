# Tokens a second and percent of peak by number of GPUs. A block a series; columns: GPUs, tokens a second, the same if
# the first point scaled perfectly, percent of peak. series, series_1 ...; peak_known; fewest, most GPUs.

load folder."/style.gp"

set xlabel "GPUs"
if (most > 2 * fewest) set logscale x 2
set xrange [fewest / (most > fewest ? 1.12 : 2.0) : most * (most > fewest ? 1.12 : 2.0)]
set for [i=1:1] xtics ()
do for [i=0:series-1] {
        stats data index i using 1 nooutput
        do for [row=0:int(STATS_records)-1] {
                stats data index i every ::row::row using 1 nooutput
                set xtics add (sprintf("%d", STATS_min) STATS_min)
        }
}
set key left top Left reverse
if (peak_known) set multiplot layout 2,1 margins 0.1,0.97,0.1,0.92 spacing 0.13

set title "Throughput"
set ylabel "tokens a second"
set format y "%.1s%c"
set yrange [0:*]
plot for [i=0:series-1] data index i using 1:3 with lines dt (6,6) lw 1 lc rgb colour(i + 1) notitle, \
     for [i=0:series-1] data index i using 1:2 with linespoints pt shape(i + 1) ps 1.6 lw 2 lc rgb colour(i + 1) title value(sprintf("series_%d", i + 1)), \
     keyentry with lines dt (6,6) lw 1 lc rgb grey title "if the smallest run scaled perfectly"

if (peak_known) {
        set title "Share of the peak"
        set ylabel "% of peak flop/s"
        set format y "%g"
        unset key
        plot for [i=0:series-1] data index i using 1:4 with linespoints pt shape(i + 1) ps 1.6 lw 2 lc rgb colour(i + 1), \
             for [i=0:series-1] data index i using 1:4:(sprintf("%.1f", $4)) with labels offset 0,1.1 textcolor rgb colour(i + 1) font ",11"
        unset multiplot
}
