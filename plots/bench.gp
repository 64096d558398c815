# Ratios of `make bench`: a panel a group, a bar a row with its median, and a line from its least to its most. One block a
# panel; columns: what it is ("": as the row above), median, least, most, kind (from 0), place from the top.
# panels; title_0, axis_0, kinds_0, kind_0_0, kind_0_1 ...: of each.

columns = panels > 1 ? 2 : 1
lines = (panels + columns - 1) / columns
height = 510 * lines
load folder."/style.gp"
set datafile separator tab
array kind_colours[4] = [sky, blue, green, orange]

set multiplot
set style fill solid 1.0 noborder
unset grid
set grid xtics linecolor rgb pale linetype 1 linewidth 0.7
set border 0
set tics scale 0
unset ytics
across = 1.0 / columns
down = 1.0 / lines
do for [i=0:panels-1] {
        column = i % columns
        line = i / columns
        left = column * across + 0.34 * across
        top = 1 - line * down - 0.23 / lines
        set lmargin at screen left
        set rmargin at screen (column + 1) * across - 0.05 * across
        set tmargin at screen top
        set bmargin at screen 1 - (line + 1) * down + 0.15 / lines
        kinds = int(value(sprintf("kinds_%d", i)))
        set label 1 value(sprintf("title_%d", i)) at screen column * across + 0.03 * across, screen 1 - line * down - 0.05 / lines left font big textcolor rgb ink
        set key at screen left - 0.012, screen top + 0.005 / lines left bottom Left reverse vertical maxrows 3 font small samplen 0.6 spacing 1.1
        set xlabel value(sprintf("axis_%d", i)) offset 0,0.2
        set autoscale
        stats data index i using 6 nooutput name "place"
        stats data index i using 4 nooutput name "largest"
        set yrange [place_max + 0.8 : 0.2]
        end = 1.2 * (largest_max > 1 ? largest_max : 1)
        set xrange [0 : end]
        set arrow 1 from first 1, graph 0 to first 1, graph 1 nohead lw 1.4 dt (7,5) lc rgb ink front
        plot data index i using (0.5 * $2):6:(0.5 * $2):(0.42):(kind_colours[1 + int($5)]) with boxxyerror lc rgb variable notitle, \
             data index i using 2:6:3:4 with xerrorbars pt 0 lw 1.5 lc rgb ink notitle, \
             data index i using (end):6:(sprintf("%.2f", $2)) with labels right font small textcolor rgb ink notitle, \
             data index i using (0):6:1 with labels right offset -1,0 font small textcolor rgb ink notitle, \
             for [k=0:kinds-1] keyentry with boxes fillstyle solid 1.0 noborder lc rgb kind_colours[1 + k] \
                     title value(sprintf("kind_%d_%d", i, k))
}
unset multiplot
