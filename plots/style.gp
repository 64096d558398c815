# What all figures share: the terminal, colours that colour-blind readers can tell apart (Okabe and Ito 2008), a light
# grid and no box. Loaded with `format` (png or svg) set; `out` (else it is standard output) and `height` may be.

if (!exists("height")) height = 800
has_cairo = strstrt(GPVAL_TERMINALS, "pngcairo") > 0
if (format eq "svg") {
        set terminal svg size 1200,height dynamic enhanced font "DejaVu Sans,Helvetica,Arial,sans-serif,17" background rgb "white" linewidth 1.3
} else {
        if (has_cairo) {
                set terminal pngcairo size 1200,height enhanced font "DejaVu Sans,13" background rgb "white" linewidth 1.5
        } else {
                set terminal png size 1200,height enhanced font "DejaVu Sans,13" linewidth 1.5
        }
}
set termoption noenhanced # names of models and files are shown as they are
if (exists("out")) set output out
set encoding utf8

points(n) = sprintf(",%g", format eq "svg" ? 1.3 * n : n) # the terminals count differently
dot(n) = format eq "svg" ? 0.6 * n : n
big = points(16); small = points(11); tiny = points(8.5)

blue = 0x0072B2; orange = 0xE69F00; green = 0x009E73; red = 0xD55E00
sky = 0x56B4E9; purple = 0xCC79A7; yellow = 0xF0E442; grey = 0x8A8F98
ink = 0x2B2F36; pale = 0xE4E7EB
array palette_colours[9] = [blue, orange, green, red, purple, sky, yellow, grey, ink]
colour(i) = palette_colours[(int(i) - 1) % 9 + 1]
array point_shapes[6] = [7, 5, 9, 11, 13, 15]
shape(i) = point_shapes[(int(i) - 1) % 6 + 1]

set border 3 linecolor rgb ink linewidth 0.8
set tics nomirror out scale 0.6 textcolor rgb ink
set grid linecolor rgb pale linetype 1 linewidth 0.7
set key textcolor rgb ink spacing 1.25 samplen 2
set title textcolor rgb ink offset 0,0.4 font big
set xlabel textcolor rgb ink
set ylabel textcolor rgb ink

# Operations of a trace, in the order of enum look (plots/traced.h).
array look_colours[10] = [blue, orange, green, purple, 0x6C7A89, yellow, sky, red, ink, 0xC9CED6]
array look_names[10] = ["forward", "backward", "optimizer", "all-reduce", "message", "load", "fetch", "write back", \
                         "activations", "waiting"]
