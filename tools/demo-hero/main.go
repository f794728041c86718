package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Options of a run.
type Options struct {
	Edda     string // the binary under test
	Out      io.Writer
	Timeout  time.Duration // of the whole run; an idle machine needs a quarter of two minutes
	Keep     bool          // leaves the folder with data and logs behind, and says where it is
	Embedded bool          // uses the Redis in this process even where redis-server is installed
}

func main() {
	o := Options{Out: os.Stdout}
	f := pflag.NewFlagSet("demo-hero", pflag.ContinueOnError)
	f.StringVar(&o.Edda, "edda", "../bin/edda", "the binary under test")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "how long the whole run may take")
	f.BoolVar(&o.Keep, "keep", false, "keep the folder with data and logs, and say where it is")
	f.BoolVar(&o.Embedded, "embedded-redis", false, "use an embedded Redis even where redis-server is installed")
	err := f.Parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = Run(ctx, o)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo-hero:", err)
		os.Exit(1)
	}
}
