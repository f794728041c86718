package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"edda/hero/coordinator"
	"edda/hero/jsonrpc"
	"edda/internal/files"
)

// heroClient is where the coordinator is.
type heroClient struct{ url, tokenFile string }

func (h *heroClient) register(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&h.url, "coordinator", "", "URL of the coordinator (COORDINATOR_URL; http://"+coordinator.DefaultHTTPAddr+")")
	f.StringVar(&h.tokenFile, "token-file", "", "file with the token")
}

func (h *heroClient) open(t *terminal) (*jsonrpc.Client, error) {
	h.url = cmp.Or(h.url, t.getenv("COORDINATOR_URL"), "http://"+coordinator.DefaultHTTPAddr)
	if !strings.Contains(h.url, "://") {
		h.url = "http://" + h.url
	}
	o := jsonrpc.ClientOptions{}
	if h.tokenFile != "" {
		token, err := files.Read(h.tokenFile, files.Most)
		if err != nil {
			return nil, usagef("read the token: %w", err)
		}
		o.Token = strings.TrimSpace(string(token))
	}
	return jsonrpc.NewClient(h.url, o), nil
}

// failed says what a call's error means, and what to do.
func (h *heroClient) failed(err error) error {
	no, strange := (*jsonrpc.Error)(nil), (*jsonrpc.HTTPError)(nil)
	switch {
	case errors.As(err, &no):
		return refused{no}
	case errors.As(err, &strange):
		return fmt.Errorf("%s is no coordinator: %w", h.url, err)
	}
	return fmt.Errorf("no coordinator answers at %s (%w): start one with edda dev --hero or edda run --role coordinator, or name it with --coordinator or COORDINATOR_URL", h.url, err)
}

func (t *terminal) heroCallCommand() *cobra.Command {
	var h heroClient
	c := &cobra.Command{
		Use: "call METHOD [PARAMS]", Short: "Call a method of the coordinator",
		Long: `Call a method of the coordinator with params as JSON: text, @FILE, or - for
standard input. The result is printed as JSON. rpc.discover lists the methods.`,
		Example: `  edda hero call actor.create '{"actor": {"id": 12, "pubkey": "", "address": []}}'
  edda hero call flow.load '{"context_id": 7, "id": 33}'
  edda hero call rpc.discover`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: cobra.FixedCompletions(coordinator.Methods(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, words []string) error {
			params, err := t.params(words[1:])
			if err != nil {
				return err
			}
			client, err := h.open(t)
			if err != nil {
				return err
			}
			var result json.RawMessage
			if err := client.Call(cmd.Context(), words[0], params, &result); err != nil {
				return h.failed(err)
			}
			return indented(t.out, result)
		},
	}
	h.register(c)
	return c
}

// params reads what a method is called with; none are an empty object.
func (t *terminal) params(words []string) (json.RawMessage, error) {
	text := "{}"
	if len(words) > 0 {
		text = words[0]
	}
	text, err := t.content("PARAMS", text)
	if err != nil {
		return nil, err
	}
	if !json.Valid([]byte(text)) {
		return nil, usagef("PARAMS are no JSON: want an object such as '{\"id\": 7}'")
	}
	return json.RawMessage(text), nil
}
