// Command demo-cluster runs three nodes of a cluster over three NATS servers, all as processes.
// It kills the owner of the store with -9 while orders flow, has the next owner hand over, and
// compares the records of a small shop with the sagas, and the copies of the store.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"edda/internal/demo"
	"edda/internal/natsservers"
)

func main() {
	natsservers.Main()
	o := demo.Options{Out: os.Stdout}
	f := pflag.NewFlagSet("demo-cluster", pflag.ContinueOnError)
	f.StringVar(&o.Edda, "edda", "bin/edda", "the binary under test")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "how long the whole run may take")
	f.BoolVar(&o.Keep, "keep", false, "keep the folder with data and logs, and say where it is")
	err := f.Parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = demo.RunCluster(ctx, o)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo-cluster:", err)
		os.Exit(1)
	}
}
