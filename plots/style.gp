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
big = points(16); small = points(11); tiny = points(8.5); minute = points(6.5)

# Hues of Okabe and Ito. Series (runs, models, best plans) take them in order; there a colour means what the key says.
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
set style textbox opaque noborder fillcolor rgb "white" margins 0.3,0.1 # boxed: grid lines end at texts
set key textcolor rgb ink spacing 1.25 samplen 2
set title textcolor rgb ink offset 0,0.4 font big
set xlabel textcolor rgb ink
set ylabel textcolor rgb ink

# What is not a series has one colour in all figures, and what belongs together has shades of one hue: backwards,
# what the optimizer works on, what it copies, and what replicas and shards do together.
forward = blue; backward = orange; backward_weights = 0xA65E00; compute = 0x3D5A80; bubble = 0xC9CED6
gradients = purple; collectives_of_shards = 0x8E4A7B; message = 0x6C7A89; tokens = yellow
optimizer = green; master = 0x006B4E; buckets = 0x8FD3BC; fetch = sky; write_back = 0xA8D5F2
weights = 0x4B3B7A; activations = red; workspace = 0xB99B6B; framework = 0x5C4B3A; checkpoint = 0x2F6F73

# Operations of a trace, in the order of enum look (plots/traced.h).
array look_colours[14] = [forward, backward, backward, backward_weights, optimizer, gradients, collectives_of_shards, message, \
                          tokens, fetch, write_back, activations, checkpoint, bubble]
array look_names[14] = ["forward", "backward", "backward, inputs", "backward, weights", "optimizer", "all-reduce", \
                         "shards together", "message", "load", "fetch", "write back", "activations", "checkpoint", "waiting"]

# Categories of memory (memory_category_name).
memory_colour(name) = name eq "weights" ? weights : name eq "gradients" ? gradients : name eq "master" ? master : \
                      name eq "optimizer" ? optimizer : name eq "buckets" ? buckets : name eq "activations" ? activations : \
                      name eq "messages" ? message : name eq "tokens" ? tokens : name eq "framework" ? framework : workspace

# Mixes a colour with white: a share of 0 leaves it as it is.
mixed(part, share) = int(part + (255 - part) * share)
lighter(rgb, share) = mixed(rgb >> 16 & 255, share) << 16 | mixed(rgb >> 8 & 255, share) << 8 | mixed(rgb & 255, share)
# The colour of a text that is read on `rgb`.
text_on(rgb) = 0.299 * (rgb >> 16 & 255) + 0.587 * (rgb >> 8 & 255) + 0.114 * (rgb & 255) > 110 ? ink : 0xFFFFFF
