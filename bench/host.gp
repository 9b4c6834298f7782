# SPDX-License-Identifier: BSD-2-Clause
# gnuplot -e "data='...'; out='host.svg'; what='title'" bench/host.gp
set terminal svg size 1000,560 font "sans,12" background "white"
set output out
set title "Two processes on one host: share of the goal, median and quartiles (" . what . ")"
set ylabel "1 = goal reached"
set logscale y
set grid y
set style fill solid 0.5
set boxwidth 0.6
set xtics rotate by -35 left font ",9"
set rmargin 12
set arrow from graph 0, first 1 to graph 1, first 1 nohead lw 2 lc "red"
unset key
plot data using 1:2:xtic(5) with boxes lc "#4477aa", \
     data using 1:2:3:4 with yerrorbars lc "black" pt 0
