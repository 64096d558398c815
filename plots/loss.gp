# Loss by step. A block a run; columns: step, train loss, validation loss (NaN where there is none). series, series_1 ...

load folder."/style.gp"

set title "Loss"
set xlabel "step"
set ylabel "cross-entropy (nats a token)"
set key right top Left reverse
set datafile missing "nan"
set autoscale xfix
set offsets graph 0.01, graph 0.02, graph 0.06, graph 0.04
faint(rgb) = rgb + 0x88000000 # the noise of single batches stands behind the validation

plot for [i=0:series-1] data index i using 1:2 with lines lw 1.2 lc rgb faint(colour(i + 1)) \
             title value(sprintf("series_%d", i + 1)).", train", \
     for [i=0:series-1] data index i using 1:3 with linespoints pt 7 ps dot(1.3) lw 2 lc rgb colour(i + 1) \
             title value(sprintf("series_%d", i + 1)).", validation"
