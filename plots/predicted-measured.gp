# Predicted against measured time per batch. Columns: measured, predicted, measured p10, measured p90, model, layout, the
# prediction's low and high (NaN: not known).
# low, high: the range of both axes; intervals: 1 if any prediction has one; unit; models, model_1 ...; layouts, layout_1 ...; log_scale; summary; error_range (percent).

load folder."/style.gp"

set title "Time per batch: predicted against measured" offset 0,1.1
set label 1 summary at graph 0.5,1.035 center textcolor rgb 0x5B6470
set xlabel "measured, median and 10th to 90th percentile (".unit.")"
set ylabel (intervals ? "predicted, with the interval of nine batches in ten (" : "predicted (").unit.")"
set xrange [low:high]
set yrange [low:high]
set size ratio -1
set tmargin 4
set lmargin at screen 0.11
set rmargin at screen 0.71
if (log_scale) {
        set logscale xy
        # 1, 2, 5 a decade: enough labels when the range is short of two decades
        set xtics ()
        set ytics ()
        do for [e=-6:9] { do for [m in "1 2 5"] {
                at = m * 10.0**e
                if (at >= low && at <= high) {
                        set xtics add (sprintf("%g", at) at)
                        set ytics add (sprintf("%g", at) at)
                }
        } }
}
set key at screen 0.735, graph 0.98 left top Left reverse maxrows 24
set samples 200
set multiplot

plot '+' using 1:($1*0.95):($1*1.05) with filledcurves fc rgb sky fs transparent solid 0.25 noborder title "within 5 %", \
     x with lines lc rgb ink lw 1 title "predicted = measured", \
     data using ($7 > 0 ? $1 : NaN):2:7:8:(colour($5)) with yerrorbars pt 0 lw 1 lc rgb variable notitle, \
     data using 1:2:3:4:(colour($5)) with xerrorbars pt 0 lw 1 lc rgb variable notitle, \
     data using 1:2:(shape($6)):(colour($5)) with points pt variable ps dot(1.9) lc rgb variable notitle, \
     for [i=1:models] keyentry with points pt 7 ps dot(1.9) lc rgb colour(i) title value(sprintf("model_%d", i)), \
     for [i=1:layouts] keyentry with points pt shape(i) ps dot(1.6) lc rgb grey title value(sprintf("layout_%d", i))

# The same points, as what matters: how far off each prediction is.
unset label 1
unset key
set title "error by measured time" font small offset 0,-0.4
set size noratio
set lmargin at screen 0.775
set rmargin at screen 0.965
set bmargin at screen 0.115
set tmargin at screen 0.42
set xlabel unit font small
set ylabel "error (%)" font small offset 1.5,0
# A narrow panel: about three numbers below it.
raw = (high - low) / 3
power = 10.0**floor(log10(raw))
step = (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1) * power
if (log_scale) {
        set xtics () font small
        do for [e=-6:9] { do for [m in (high / low > 20 ? "1" : "1 3")] {
                at = m * 10.0**e
                if (at >= low && at <= high) {
                        set xtics add (sprintf("%g", at) at)
                }
        } }
} else {
        set xtics step font small
}
unset logscale y
set ytics font small autofreq
set yrange [-error_range:error_range]
set object 1 rectangle from graph 0, first -5 to graph 1, first 5 fc rgb sky fs transparent solid 0.25 noborder behind
error(predicted, measured) = 100 * (predicted / measured - 1)
plot 0 with lines lc rgb ink lw 1, \
     data using ($7 > 0 ? $1 : NaN):(error($2, $1)):(error($7, $1)):(error($8, $1)):(colour($5)) with yerrorbars pt 0 lw 1 lc rgb variable, \
     data using 1:(error($2, $1)):(shape($6)):(colour($5)) with points pt variable ps dot(1.1) lc rgb variable
unset multiplot
