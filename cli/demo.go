package cli

import (
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"edda/internal/demo"
)

// demoCommand runs the demo with this binary.
func (t *terminal) demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a thousand orders through a saga, and check them against a small shop's records",
		Long: `Starts edda dev with the order and trip sagas on free ports, and a small shop that
answers, declines, delays and loses calls. Sends orders through a NATS client, waits
for their end, and compares the shop's records with the sagas. Exits 0 only if they
agree. With --stay everything then stays to look at, until Ctrl-C.`,
		Example: "  edda demo\n  edda demo --orders 100 --trips 20 --stay",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Edda, err = os.Executable(); err != nil {
				return err
			}
			o.Out = t.out
			f, isFile := t.out.(*os.File)
			o.Progress = isFile && isatty.IsTerminal(f.Fd())
			return demo.Run(c.Context(), o)
		},
	}
	c.Flags().IntVar(&o.Orders, "orders", 1000, "number of orders")
	c.Flags().IntVar(&o.Trips, "trips", 200, "number of trips")
	c.Flags().DurationVar(&o.Timeout, "timeout", time.Minute, "timeout of the run, without --stay")
	c.Flags().BoolVar(&o.Stay, "stay", false, "leave edda and the shop running to look at, until Ctrl-C")
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep the data folder and print its path")
	return c
}
