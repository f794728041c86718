package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/node"
	"edda/server"
)

const (
	// callTimeout is longer than the server's wait for a commit.
	callTimeout = 30 * time.Second
	// maxAnswer bounds the size of an answer.
	maxAnswer = 64 << 20
)

// client calls a running Edda.
type client struct {
	term   *terminal
	addr   string
	tenant string
	output outputFlag
	shard  int
	yes    bool
	who    credentials
	by     string // by and why are for the audit
	why    string
	within time.Duration // how long to wait for an answer; zero means callTimeout
}

// registerActor adds the flags of an audited command.
func (c *client) registerActor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.why, "why", "", "the reason, for the audit (required)")
	cmd.Flags().StringVar(&c.by, "by", "", "name for the audit (default: the calling user)")
}

// registerReason adds the flags of an audited command whose reason is optional.
func (c *client) registerReason(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.why, "why", "", "the reason, for the audit")
	cmd.Flags().StringVar(&c.by, "by", "", "name for the audit (default: the calling user)")
}

// reasoned refuses a command without a reason before it is sent.
func (c *client) reasoned(what string) error {
	if strings.TrimSpace(c.why) == "" {
		return usagef("%s: say why, for the audit: --why TEXT", what)
	}
	return nil
}

// register adds the flags of every command that calls a server.
func (c *client) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.addr, "addr", "", "address or URL of the server to call ("+envURL+"; "+node.DefaultAddr+")")
	flags.StringVar(&c.tenant, "tenant", "", "tenant (EDDA_TENANT; in edda dev: default)")
	flags.IntVar(&c.shard, "shard", anyShard, "shard of a cluster that is meant (default: the one that has what is asked for, or each)")
	c.who.register(flags)
}

// anyShard leaves it to the server to find the shard.
const anyShard = -1

const (
	// envURL names the server that commands call.
	envURL = "EDDA_URL"
	// envAddr names the address on which edda run and edda dev listen.
	envAddr = "EDDA_ADDR"
)

// base is the URL of the server.
func (c *client) base() string {
	addr := cmp.Or(c.addr, c.term.getenv(envURL), node.DefaultAddr)
	if !strings.Contains(addr, "://") {
		addr = c.who.scheme(c.term.getenv) + "://" + addr
	}
	return strings.TrimSuffix(addr, "/")
}

// misaddressed refuses to call the default address if EDDA_ADDR names another one and
// nothing names the server. EDDA_ADDR sets where a process listens; a user who set it for
// this call would reach the wrong process.
func (c *client) misaddressed() error {
	listens := c.term.getenv(envAddr)
	if c.addr != "" || c.term.getenv(envURL) != "" || listens == "" || reachedByDefault(listens) {
		return nil
	}
	where := listens
	if !strings.Contains(where, "://") {
		where = c.who.scheme(c.term.getenv) + "://" + where
	}
	return usagef("%s=%s says where edda run listens, and no more whom commands call: set %s=%s, or name the server with --addr", envAddr, listens, envURL, where)
}

// reachedByDefault tells whether a server on this address also answers at the default
// address, as in the container of an edda run.
func reachedByDefault(listens string) bool {
	host, port, err := net.SplitHostPort(listens)
	if _, defaultPort, _ := net.SplitHostPort(node.DefaultAddr); err != nil || port != defaultPort {
		return false
	}
	if host == "" || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// problemBody is an RFC 9457 problem.
type problemBody struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// call makes one request and returns the answer's JSON.
func (c *client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.within, callTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base()+path, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("address %q: %w", c.base(), err)
	}
	resp, err := c.send(req, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.base(), err)
	}
	if resp.StatusCode >= 400 {
		return nil, refusal(resp, text)
	}
	return text, nil
}

// send makes a request with the credentials and the headers of the caller.
func (c *client) send(req *http.Request, body []byte) (*http.Response, error) {
	if err := c.misaddressed(); err != nil {
		return nil, err
	}
	c.head(req, body)
	if err := c.who.show(c.term, req); err != nil {
		return nil, err
	}
	connection, err := c.who.client(c.term.getenv)
	if err != nil {
		return nil, err
	}
	resp, err := connection.Do(req)
	if err != nil {
		return nil, c.unreachable(req.Context(), err)
	}
	return resp, nil
}

func (c *client) head(req *http.Request, body []byte) {
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	tenant := c.tenant
	if tenant == "" {
		tenant = c.term.getenv("EDDA_TENANT")
	}
	if tenant != "" {
		req.Header.Set("x-tenant-id", tenant)
	}
	if c.shard != anyShard {
		req.Header.Set(server.ShardHeader, strconv.Itoa(c.shard))
	}
	if by := cmp.Or(c.by, c.term.getenv("USER"), osUser()); by != "" {
		req.Header.Set("x-edda-by", oneLine(by))
	}
	if c.why != "" {
		req.Header.Set("x-edda-why", oneLine(c.why))
	}
}

func osUser() string {
	u, err := user.Current()
	if err != nil {
		return "" // no user database: the audit says unknown
	}
	return u.Username
}

// oneLine makes a text valid for a header.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (c *client) unreachable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer from %s within %s", c.base(), cmp.Or(c.within, callTimeout))
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("no Edda answers at %s (%w): start one with edda dev PATH, or name its address with --addr or %s", c.base(), err, envURL)
}

// refusedError is an answer of the server that refuses the call.
type refusedError struct {
	status int
	text   string
	shards int // that the server has, where the call must name one
}

func (e *refusedError) Error() string { return e.text }

func refusal(resp *http.Response, text []byte) error {
	var p problemBody
	if json.Unmarshal(text, &p) != nil || p.Detail == "" && p.Title == "" {
		return &refusedError{status: resp.StatusCode, text: "the server answered " + resp.Status}
	}
	out := p.Detail
	if out == "" {
		out = p.Title
	}
	for _, e := range p.Errors {
		out += "\n  " + strings.TrimPrefix(e.Location+": "+e.Message, ": ")
	}
	shards, _ := strconv.Atoi(resp.Header.Get(server.ShardsHeader)) // most refusals have none
	return &refusedError{resp.StatusCode, out, shards}
}

// noSaga explains an error, or an empty answer, by a saga that the server does not run. It
// returns the error as it is if the server runs the saga, or does not say what it runs.
func (c *client) noSaga(ctx context.Context, saga string, err error) error {
	var refused *refusedError
	if saga == "" || err != nil && !(errors.As(err, &refused) && refused.status == http.StatusNotFound) {
		return err
	}
	var info server.Info
	if _, problem := c.get(ctx, "/info", &info); problem != nil || len(info.Sagas) == 0 {
		return err
	}
	var names []string
	for _, s := range info.Sagas {
		if s.Saga == saga {
			return err
		}
		if !slices.Contains(names, s.Saga) {
			names = append(names, s.Saga)
		}
	}
	if near := manifests.Nearest(saga, names); near != "" {
		return fmt.Errorf("there is no saga %s; did you mean %s?", saga, near)
	}
	return fmt.Errorf("there is no saga %s: there are %s", saga, list(names))
}

// get fetches and decodes an answer. It also returns the raw answer, for -o json.
func (c *client) get(ctx context.Context, path string, into any) ([]byte, error) {
	return c.callInto(ctx, http.MethodGet, path, nil, into)
}

// callInto makes one request and decodes the answer. It also returns the raw answer, for -o json.
func (c *client) callInto(ctx context.Context, method, path string, body []byte, into any) ([]byte, error) {
	text, err := c.call(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", c.base(), err)
	}
	return text, nil
}

// segment escapes a name for a path. It escapes dots too, because "." and ".." are special
// in paths.
func segment(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), ".", "%2E")
}
