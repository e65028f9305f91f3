// Ticks once a second in a Worker: the timers of a hidden page fire once a minute, and its locks would expire meanwhile.
setInterval(() => postMessage('tick'), 1000);
