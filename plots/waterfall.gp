# What parts a prediction from what was measured: a bar a step, from the percent of peak before it to that after it.
# Columns: the step, percent before, percent after, what is written above, colour (1: a step, 2: what no step explains); rows: how
# many. model; low, high: the measured band.

height = 700
load folder."/style.gp"
set style fill solid 1.0 noborder
unset key
set title model.": percent of peak, step by step"
set ylabel "% of peak flop/s"
floor = low - 4
stats data using 3 nooutput name "after"
set yrange [floor : after_max + 3]
set xrange [-0.7 : rows - 0.3]
set xtics rotate by -35 font small
set object 1 rectangle from graph 0, first low to graph 1, first high fillcolor rgb pale fillstyle solid noborder behind
set label 1 sprintf("measured, %g to %g %%", low, high) at first 0.6, first (low + high) / 2 left font small textcolor rgb ink
bottom(percent) = percent == 0 ? floor : percent
plot data using 0:(bottom($2)):(column(0) - 0.3):(column(0) + 0.3):(bottom($2)):3:(colour($5)):xtic(1) with boxxyerror lc rgb variable, \
     data using 0:($2 > $3 ? $2 : $3):4 with labels offset 0,0.8 font small textcolor rgb ink
