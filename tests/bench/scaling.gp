# SPDX-License-Identifier: MIT
# Plot what `make bench BENCH=scaling` measured; tests/bench/run calls it:
#	gnuplot -e "data='build/bench/scaling.txt'; blocks=7; svg='build/bench/scaling.svg'" tests/bench/scaling.gp
# data has a block for each context, headed by it: streams, tokens/s, ms per step.
set terminal svg size 1100,480 font "sans-serif,12" background "white"
set output svg
set multiplot layout 1,2
set logscale xy
set xtics (1, 2, 4, 8, 16, 32, 64)
set xrange [0.9:71]
set grid
set xlabel "streams"
set key bottom right reverse Left title "context"
set title "tokens/s, all streams together"
plot for [i=0:blocks-1] data index i using 1:2 with linespoints pt 7 ps 0.6 title columnheader(1)
set key top left
set title "milliseconds per step"
plot for [i=0:blocks-1] data index i using 1:3 with linespoints pt 7 ps 0.6 title columnheader(1)
unset multiplot
