package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"edda/server"
)

// healthAnswer is the answer of GET /health, whatever its status code.
type healthAnswer struct {
	Status     string                            `json:"status"`
	Components map[string]server.ComponentStatus `json:"components"`
}

func (t *terminal) healthCommand() *cobra.Command {
	c := &client{term: t}
	cmd := &cobra.Command{
		Use: "health", Short: "Show whether a running Edda works, and which part does not", Args: args(cobra.NoArgs),
		Long: `Show whether a running Edda works, and which part does not. It exits 1 if a part is
down or nothing answers, as a health check of a container should. It needs no token.`,
		Example: "  edda health\n  edda health --addr 127.0.0.1:8701",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+"/health", nil)
			if err != nil {
				return usagef("address %q: %w", c.base(), err)
			}
			resp, err := c.send(req, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			if err != nil {
				return fmt.Errorf("read the answer of %s: %w", c.base(), err)
			}
			var h healthAnswer
			if json.Unmarshal(raw, &h) != nil || h.Status == "" {
				return refusal(resp, raw)
			}
			return c.printHealth(h, raw)
		},
	}
	c.register(cmd)
	c.output.register(cmd)
	return cmd
}

// printHealth prints the parts. It fails if one is down.
func (c *client) printHealth(h healthAnswer, raw []byte) error {
	if c.output == outputJSON {
		if err := indented(c.term.out, raw); err != nil {
			return err
		}
	} else {
		for _, name := range slices.Sorted(maps.Keys(h.Components)) {
			one := h.Components[name]
			line := name + " " + one.State
			if one.Problem != "" {
				line += ": " + printable(one.Problem)
			}
			fmt.Fprintln(c.term.out, line)
		}
	}
	if h.Status != "up" {
		return fmt.Errorf("%s is not healthy", c.base())
	}
	return nil
}
