package main

import (
	"io"
	"time"
)

// Options of a run. The zero value of a field means its default.
type Options struct {
	Edda string // the edda binary
	Out  io.Writer
	// Timeout bounds the whole run: two minutes, of which an idle machine needs a
	// quarter.
	Timeout time.Duration
	// Keep leaves the folder with the data and the logs behind and says where it is.
	Keep bool
	// Embedded uses the Redis in this process even where redis-server is installed.
	Embedded bool
}

const (
	defaultTimeout = 2 * time.Minute
	// startFor bounds how long a process may take to be ready. A runner that was
	// killed waits until its last heartbeat is over.
	startFor = 40 * time.Second
	// settleFor bounds how long the books may lag behind the flow's end: its last
	// result message, and counters.
	settleFor = 10 * time.Second
	// callFor bounds one call.
	callFor = 20 * time.Second
	// workers is how many scripts the runner runs at once, however few processors
	// there are: they mostly sleep.
	workers = "4"
)

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return o
}
