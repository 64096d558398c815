# Predicted against measured time per batch. Columns: measured, predicted, measured p10, measured p90, model, layout.
# low, high: the range of both axes; unit; models, model_1 ...; layouts, layout_1 ...; log_scale; summary.

load folder."/style.gp"

set title "Time per batch: predicted against measured\n{/*0.8 ".summary."}" enhanced
set xlabel "measured (".unit.")"
set ylabel "predicted (".unit.")"
set xrange [low:high]
set yrange [low:high]
set size ratio -1
if (log_scale) {
        set logscale xy
        set xtics add autofreq
}
set key left top Left reverse opaque
set samples 200

plot '+' using 1:($1*0.95):($1*1.05) with filledcurves fc rgb sky fs transparent solid 0.22 noborder title "within 5 %", \
     x with lines lc rgb ink lw 1 title "predicted = measured", \
     data using 1:2:3:4:(colour($5)) with xerrorbars pt 0 lw 1 lc rgb variable notitle, \
     data using 1:2:(shape($6)):(colour($5)) with points pt variable ps 1.9 lc rgb variable notitle, \
     for [i=1:models] keyentry with points pt 7 ps 1.9 lc rgb colour(i) title value(sprintf("model_%d", i)), \
     for [i=1:layouts] keyentry with points pt shape(i) ps 1.6 lc rgb grey title value(sprintf("layout_%d", i))
