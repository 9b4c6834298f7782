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

# Each plot is there only if its group has run.
if (system("grep -c '^[0-9]' " . bw) > 0) {
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
}

if (system("grep -c '^latency,' " . sm) > 0) {
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
	unset logscale y
}

rg = dir . "/registration.csv"
if (system("grep -c '^[0-9]' " . rg) > 0) {
	set output dir . "/registration.svg"
	set title "Cost of registering memory, median and quartiles (" . what . ")"
	set xlabel "size of the memory"
	set ylabel "microseconds"
	set logscale x 2
	set logscale y
	set format x "%.0b %B"
	set xrange [2048:2147483648]
	us(c) = column(c) / 1000
	plot rg using 1:(us(2)):(us(3)):(us(4)) skip 1 with yerrorlines lw 2 title "ibv\\_reg\\_mr", \
	     rg using 1:(us(8)):(us(9)):(us(10)) skip 1 with yerrorlines lw 2 title "ibv\\_dereg\\_mr", \
	     rg using 1:(us(5)):(us(6)):(us(7)) skip 1 with yerrorlines lw 2 title "mlock"
	unset logscale
}

cost = "awk -F, '$1 == \"instructions\"' " . dir . "/summary.csv"
if (system(cost . " | wc -l") > 0) {
	set output dir . "/instructions.svg"
	set title "Instructions of a call, system calls not included (" . what . ")"
	set xlabel ""
	set ylabel "instructions"
	set format x "%g"
	set autoscale x
	set yrange [0:*]
	set boxwidth 0.6
	set style fill solid 0.5
	plot "< " . cost using 0:6:xtic(2) with boxes notitle, \
	     "< " . cost using 0:6:(sprintf("%.0f", $6)) with labels offset 0,0.7 notitle
}
