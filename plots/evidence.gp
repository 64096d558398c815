# Every run that was validated: seconds a batch, predicted over measured. A block a series; columns: measured, predicted.
# series, series_1 ...: its name; kind_1 ...: its shape (published runs, local ones); summary.

load folder."/style.gp"
set datafile separator tab

set title "Seconds a batch: predicted against measured" offset 0,1.1
set label 1 summary at graph 0.5,1.035 center textcolor rgb 0x5B6470
set xlabel "measured"
set ylabel "predicted" offset 0.5,0
set logscale xy
stats data using 1 nooutput name "m"
low = 10.0**floor(log10(m_min)); high = 10.0**ceil(log10(m_max))
set xrange [low:high]
set yrange [low:high]
set size ratio -1
set format xy ""
set xtics (); set ytics ()
do for [e=-6:9] {
        name = e < -3 ? sprintf("%g µs", 10.0**(e + 6)) : e < 0 ? sprintf("%g ms", 10.0**(e + 3)) : sprintf("%g s", 10.0**e)
        set xtics add (name 10.0**e)
        set ytics add (name 10.0**e)
}
set tmargin 4
set lmargin at screen 0.11
set rmargin at screen 0.68
set key at screen 0.7, graph 0.985 left top Left reverse maxrows 30
set samples 200
plot '+' using 1:($1*0.9):($1*1.1) with filledcurves fc rgb sky fs transparent solid 0.25 noborder title "within 10 %", \
     x with lines lc rgb ink lw 1 title "predicted = measured", \
     for [i=0:series-1] data index i using 1:2 with points pt shape(i / 9 + 1) ps dot(1.15) lc rgb colour(i + 1) notitle, \
     for [i=0:series-1] keyentry with points pt shape(i / 9 + 1) ps dot(1.8) lc rgb colour(i + 1) title value(sprintf("series_%d", i + 1))
