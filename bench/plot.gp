# SPDX-License-Identifier: BSD-2-Clause
# gnuplot -e "dir='bench/results'; what='title'" bench/plot.gp
set datafile separator ","
set datafile commentschars "#"
set terminal svg size 800,500 font "sans,12" background "white"
set grid
set key top left
set logscale x 2
set format x "%.0b %B"
set xlabel "message size"
set xrange [32:16777216]

bw = dir . "/bandwidth.csv"
sm = dir . "/samples.csv"

set output dir . "/bandwidth.svg"
set title "Bandwidth, median and quartiles (" . what . ")"
set ylabel "MB/s"
set logscale y
plot bw using 1:2:3:4 skip 1 with yerrorlines lw 2 title "raw TCP", \
     bw using 1:5:6:7 skip 1 with yerrorlines lw 2 title "RC send", \
     bw using 1:8:9:10 skip 1 with yerrorlines lw 2 title "RC write", \
     bw using 1:11:12:13 skip 1 with yerrorlines lw 2 title "RC read"
unset logscale y

set output dir . "/ratio.svg"
set title "Bandwidth relative to raw TCP (" . what . ")"
set ylabel "ratio (median of the rounds)"
set yrange [0:*]
plot bw using 1:14 skip 1 with linespoints lw 2 title "RC send", \
     bw using 1:15 skip 1 with linespoints lw 2 title "RC write", \
     bw using 1:16 skip 1 with linespoints lw 2 title "RC read", \
     0.8 with lines dashtype 2 lc "gray40" title "target at 1 MiB", \
     1 with lines lc "gray70" notitle

unset logscale x
set format x "%g"
set xrange [-0.5:*]
set xlabel "round"
set output dir . "/latency.svg"
set title "64-byte ping-pong, one way, by round (" . what . ")"
set ylabel "microseconds (mean of the round)"
set logscale y
set yrange [*:*]
pick(kind) = (strcol(1) eq "latency" && strcol(2) eq kind) ? $5 : NaN
plot sm using 4:(pick("tcp")) with points pt 7 title "raw TCP", \
     sm using 4:(pick("send")) with points pt 5 title "RC send", \
     sm using 4:(pick("write")) with points pt 9 title "RC write, target spins"
