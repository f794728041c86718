package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"edda/internal/demo"
)

func (t *terminal) demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use: "demo", Short: "A thousand orders through a saga, then the books; needs nothing else",
		Long: `Start edda dev with an order and a trip saga and a small shop that declines, loses
and delays on purpose, send orders through a NATS client, and hold the shop's own
books against what became of the sagas. It fails where they do not agree.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Edda, o.Out, o.Progress = self, t.out, isTerminal(t.out)
			return demo.Run(cmd.Context(), o)
		},
	}
	c.Flags().IntVar(&o.Orders, "orders", 0, "how many orders; 1000 when unsaid")
	c.Flags().IntVar(&o.Trips, "trips", 0, "how many trips; 200 when unsaid")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the data folder behind, and say where it is")
	return c
}
