// Command nats is the NATS server of the torture, as a process of its own that can
// be killed. Its arguments are where it listens and the folder of its streams.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"edda/stream/kv"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve returns when it is told to stop.
func serve(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want an address and a folder, not %q", args)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e, err := kv.StartEmbedded(ctx, kv.EmbeddedOptions{Dir: args[1], Addr: args[0]})
	if err != nil {
		return err
	}
	defer e.Close()
	<-ctx.Done()
	return nil
}
