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
		Short: "A thousand orders through a saga, checked against the books of a small shop",
		Long: `Starts edda dev with the order and trip sagas on free ports, and a small shop that answers, declines, delays
and loses calls. Sends orders through a NATS client, waits for their end, and compares the shop's books with what
the sagas say. Exits 0 only when they agree.`,
		Args: cobra.NoArgs,
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
	c.Flags().IntVar(&o.Orders, "orders", 1000, "how many orders")
	c.Flags().IntVar(&o.Trips, "trips", 200, "how many trips")
	c.Flags().DurationVar(&o.Timeout, "timeout", time.Minute, "how long the whole run may take")
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep the data folder and say where it is")
	return c
}
