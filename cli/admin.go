package cli

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"edda/server"
)

func (t *terminal) drainCommand() *cobra.Command {
	c := &client{term: t}
	cmd := &cobra.Command{
		Use: "drain", Short: "Stop a running Edda in stages; repeat to see the progress", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d server.Drain
			raw, err := c.callInto(cmd.Context(), http.MethodPost, "/admin/drain", nil, &d)
			if err != nil {
				return err
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			fmt.Fprintln(c.term.out, drainLine(d))
			return nil
		},
	}
	c.register(cmd)
	c.registerReason(cmd)
	c.output.register(cmd)
	return cmd
}

func (t *terminal) reloadCommand() *cobra.Command {
	c := &client{term: t}
	skipTests := false
	cmd := &cobra.Command{
		Use: "reload", Short: "Make a running Edda read its manifests again", Args: args(cobra.NoArgs),
		Long: `Make a running Edda read its manifests, its tenants and its token file again. If a
manifest has an error, or one of its tests fails, all manifests are refused and the
old ones stay in force, and so do the tenants. SIGHUP does the same, and the log
reports the outcome.`,
		Example: "  edda reload --why \"the new discount\"\n  edda reload --skip-tests --why \"the test is wrong, the saga is needed now\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/admin/reload"
			if skipTests {
				if err := c.reasoned("--skip-tests"); err != nil {
					return err
				}
				path += "?skip_tests=true"
			}
			var r server.Reload
			raw, err := c.callInto(cmd.Context(), http.MethodPost, path, nil, &r)
			if err != nil {
				return err
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			c.warn(r.Problems)
			for _, s := range r.Sagas {
				fmt.Fprintf(c.term.out, "%s version %s\n", s.Saga, s.VersionName)
			}
			if len(r.Tenants) > 0 {
				fmt.Fprintf(c.term.out, "tenants %s\n", strings.Join(r.Tenants, ", "))
			}
			return nil
		},
	}
	c.register(cmd)
	c.registerReason(cmd)
	cmd.Flags().BoolVar(&skipTests, "skip-tests", false, "load the manifests although some of their tests fail; needs --why")
	c.output.register(cmd)
	return cmd
}

// warn prints the warnings of manifests that were taken in.
func (c *client) warn(ps []server.Problem) {
	for _, p := range ps {
		fmt.Fprintf(c.term.err, "warning: %s\n", printable(strings.TrimPrefix(fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message), ":0:0: ")))
	}
}

// drainLine formats the progress of a drain as one line.
func drainLine(d server.Drain) string {
	line := "draining"
	if len(d.Waiting) > 0 {
		line += ": " + d.Stage + ", waiting for " + strings.Join(d.Waiting, ", ")
	}
	if d.Outbox > 0 {
		line += fmt.Sprintf("; %d in the outbox", d.Outbox)
	}
	return line
}
