package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"edda/hero/coordinator"
	"edda/manifests"
	"edda/node"
	"edda/server"
)

// defaultNATS is the default address of the embedded NATS, as of any NATS server.
const defaultNATS = "127.0.0.1:4222"

func (t *terminal) devCommand() *cobra.Command {
	s := node.Settings{Config: node.Defaults(), Dev: true}
	hero, profiled := false, false
	c := &cobra.Command{
		Use: "dev [PATH...]", Short: "Run everything in one process, NATS included; reloads when files change",
		Long: `Run everything in one process: an embedded NATS with JetStream on a real port,
the store, and the sagas and effects of the named files or folders. Without a path
these are the manifests of edda.yaml, else those in manifests/, else all in the working
directory and its subfolders. Data is kept in --data across restarts. A saved file is loaded
at once; if it has errors, these are shown and the old manifests stay in force.

With --mock no effect calls out, and none needs a secret: each is answered with the
result that the tests of the manifests give it. Every answer is printed, and the
command that brings a waiting instance on. See edda mock.

With --hero it also coordinates and runs flows of jobs: over the Redis of --redis,
else over an embedded one that is kept in --data, and over a stand-in for Mycelium
unless --mycelium-port names a real one.

EDDA_EFFECTS_HANDOFF=false sends effect commands to their worker through the stream,
as between processes.`,
		Example: "  edda dev\n  edda dev order.yaml\n  edda dev --mock order.yaml effects.yaml\n  edda dev --hero\n  edda dev sagas/ effects/ --addr 127.0.0.1:8701 --nats-addr 127.0.0.1:4223",
		RunE: func(cmd *cobra.Command, paths []string) error {
			s.Manifests = paths
			if len(paths) == 0 && !hero {
				if err := t.devHere(&s); err != nil {
					return err
				}
			}
			if addr := t.getenv(envAddr); addr != "" && !cmd.Flags().Changed("addr") {
				s.Addr = addr
			}
			if err := t.devHandoff(&s); err != nil {
				return err
			}
			s.Env = t.getenv
			if err := s.DevHero(hero, cmd.Flags().Changed("mycelium-port") || cmd.Flags().Changed("mycelium-ip")); err != nil {
				return err
			}
			if profiled {
				go profiles(t.in, t.complain) // ends with its input, at the latest with the process
			}
			if err := oneKindOfAnswers(s.Data, s.Mock); err != nil {
				return err
			}
			return t.dev(cmd.Context(), s)
		},
	}
	f := c.Flags()
	f.BoolVar(&hero, "hero", false, "coordinate and run flows of jobs, too")
	registerHero(f, &s.Config)
	f.BoolVar(&s.Mock, "mock", false, "call nobody: effects are answered from the manifests' tests; edda mock says otherwise")
	f.StringVar(&s.Data, "data", ".edda", "folder of all data; remove it to begin anew")
	f.StringVar(&s.Addr, "addr", node.DefaultAddr, "address of the HTTP server (EDDA_ADDR)")
	f.StringVar(&s.NATSAddr, "nats-addr", defaultNATS, "address of the embedded NATS")
	f.BoolVar(&s.SyncStreams, "sync-streams", false, "sync every message to disk before it is acknowledged: for power cuts; kill -9 loses nothing either way")
	f.BoolVar(&s.AcceptStreamLoss, "accept-stream-loss", false, "continue although a stream begins behind the checkpoint, or was made anew; audited")
	f.StringVar(&s.Gateway.URL, "gateway", "", "URL that takes aggregate commands")
	f.StringVar(&s.Log.Level, "log", "warn", "debug, info, warn or error")
	offer(c, "log", []string{"debug", "info", "warn", "error"})
	f.BoolVar(&profiled, "profiles", false, "write CPU profiles as the benchmark asks for them on standard input")
	_ = f.MarkHidden("profiles") // the flag exists
	return c
}

// oneKindOfAnswers refuses a data folder of the other kind: real calls would go on with invented results,
// such as the undo of a charge that nobody made.
func oneKindOfAnswers(data string, mock bool) error {
	_, err := os.Stat(filepath.Join(data, node.MockedMark))
	mocked := err == nil
	_, err = os.Stat(filepath.Join(data, "store"))
	switch used := err == nil; {
	case used && mocked && !mock:
		return usagef("the effects in %s were answered by --mock: remove that folder, or name another one with --data", data)
	case used && !mocked && mock:
		return usagef("the effects in %s were answered by services: name another folder with --data, such as --data .edda-mock", data)
	case used || !mock:
		return nil
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(data, node.MockedMark), nil, 0o600)
}

// here is the working directory.
const here = "."

// ownManifests is the folder that is searched before the others.
const ownManifests = "manifests"

// devHere uses the manifests that the working directory names: those of its edda.yaml, else
// those in its folder manifests, else all that are in it and its subfolders.
func (t *terminal) devHere(s *node.Settings) error {
	if found, err := namedHere(); err != nil {
		return err
	} else if len(found) > 0 {
		fmt.Fprintf(t.err, "edda: takes the manifests of %s: %s\n", manifests.ConfigFile, list(found))
		s.Manifests = found
		return nil
	}
	root := here
	if info, err := os.Stat(ownManifests); err == nil && info.IsDir() {
		if found, _, err := manifestsHere(ownManifests); err == nil && len(found) > 0 {
			root = ownManifests
		}
	}
	found, foreign, err := manifestsHere(root)
	if err != nil {
		return usagef("look for manifests: %w", err)
	}
	if len(found) == 0 {
		return usagef("there is no saga and no effect in this folder or those in it: write some with edda init, or name files or folders, as in edda dev sagas/")
	}
	if root == here {
		fmt.Fprintf(t.err, "edda: takes the manifests of this folder: %s\n", list(found))
	} else {
		fmt.Fprintf(t.err, "edda: takes the manifests in %s/\n", root)
	}
	foreign = slices.DeleteFunc(foreign, func(path string) bool { return path == manifests.ConfigFile })
	if len(foreign) > 0 {
		fmt.Fprintf(t.err, "edda: no manifests, and passed over: %s\n", passedOver(foreign))
	}
	s.Manifests = []string{root}
	s.Find = func() ([]string, error) {
		found, _, err := manifestsHere(root)
		return found, err
	}
	return nil
}

// namedHere lists the manifests that edda.yaml names; none without the file. The other settings
// in it are those of edda run.
func namedHere() ([]string, error) {
	if _, err := os.Stat(manifests.ConfigFile); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := node.Load(node.Sources{File: manifests.ConfigFile})
	return c.Manifests, err
}

// devHandoff reads the hand-off setting of `edda run`, because a developer of separate
// processes wants to see the effect commands in the stream.
func (t *terminal) devHandoff(s *node.Settings) (err error) {
	const name = "EDDA_EFFECTS_HANDOFF"
	text := t.getenv(name)
	if text == "" {
		return nil
	}
	if s.Effects.Handoff, err = strconv.ParseBool(text); err != nil {
		return usagef("%s %q: want true or false", name, text)
	}
	return nil
}

func (t *terminal) dev(ctx context.Context, s node.Settings) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := newWatch(s.Manifests)
	defer changes.close()
	done := make(chan struct{})
	close(done)
	err := t.serve(ctx, s, func(r node.Running) {
		t.welcome(s, r)
		done = make(chan struct{})
		go func() {
			defer close(done)
			if err := changes.run(watching, func() { t.reloadFiles(watching, r) }); err != nil {
				r.Log().Error("changes of files are not seen any more", zap.Error(err))
			}
		}()
	})
	stop()
	<-done
	return err
}

// reloadFiles reloads changed files, or prints why it cannot.
func (t *terminal) reloadFiles(ctx context.Context, r node.Running) {
	problems, kept, err := r.Reload(ctx, server.Operator{By: "edda dev", Why: "a file changed"})
	if kept != nil {
		fmt.Fprintf(t.err, "edda: %v\n", kept)
	}
	var said []string // problems of the process, without a manifest
	problems = slices.DeleteFunc(problems, func(p manifests.Problem) bool {
		if p.Warning && p.File == nil {
			said = append(said, p.Message)
		}
		return p.Warning && p.File == nil
	})
	failed := t.printProblems(problems, t.err)
	switch {
	case err != nil:
		fmt.Fprintf(t.err, "edda: not reloaded: %v; what ran before runs on\n", err)
	case failed:
		fmt.Fprintln(t.err, "edda: not reloaded; what ran before runs on")
	default:
		for _, text := range said {
			fmt.Fprintln(t.out, text)
		}
		sagas, effects := r.Names()
		fmt.Fprintf(t.out, "Reloaded: sagas %s; effects %s\n", list(sagas), list(effects))
	}
}

// list joins the first names on one line.
func list(names []string) string {
	const most = 8
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// welcome prints what runs, the addresses, and commands to try next.
func (t *terminal) welcome(s node.Settings, r node.Running) {
	data, err := filepath.Abs(s.Data)
	if err != nil {
		data = s.Data
	}
	fmt.Fprintf(t.out, "Edda is running.\n\n")
	sagas, effects := r.Names()
	fmt.Fprintf(t.out, "  sagas    %s\n  effects  %s\n", list(sagas), list(effects))
	if s.Mock {
		fmt.Fprintln(t.out, "           MOCKED: no effect calls out; each is answered from the tests (edda mock list)")
	}
	fmt.Fprintf(t.out, "  api      http://%s (documentation at /docs)\n", r.Addr())
	fmt.Fprintf(t.out, "  nats     %s\n", r.NATS())
	fmt.Fprintf(t.out, "  data     %s (kept; remove it to begin anew)\n", data)
	for _, text := range r.Notes() {
		fmt.Fprintf(t.out, "  %s\n", text)
	}
	if h := r.Hero(); h != nil {
		t.welcomeHero(*h)
	}
	fmt.Fprintf(t.out, "\nTry:\n")
	for _, line := range suggestions(s, r) {
		fmt.Fprintln(t.out, "  "+line)
	}
	fmt.Fprintf(t.out, "\nChanged files are taken in as you save them. Ctrl-C stops, twice at once.\n")
}

// suggestions lists commands to copy, for the first saga with a test that has an event.
func suggestions(s node.Settings, r node.Running) []string {
	to, at := elsewhere(s, r)
	if ev, ok := r.Sample(); ok {
		return []string{
			sendLine(ev) + to,
			"edda instance list" + at,
			fmt.Sprintf("edda instance describe %s %s%s", ev.Key.Saga, quote(ev.Key.Correlation), at),
		}
	}
	if h := r.Hero(); h != nil {
		return heroSuggestions(*h)
	}
	return []string{"edda instance list" + at}
}

// elsewhere returns the flags that name the NATS and the API of a process, where they are not
// at their default addresses.
func elsewhere(s node.Settings, r node.Running) (nats, api string) {
	if s.NATSAddr != defaultNATS {
		nats = " --nats " + r.NATS()
	}
	if r.Addr() != node.DefaultAddr {
		api = " --addr " + r.Addr()
	}
	return nats, api
}

// quote quotes a text as one word for a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// registerHero offers the settings of the Hero systems under the names that the
// original has. Their defaults are those of the configuration.
func registerHero(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.Redis.URL, "redis", "", "URL of Redis: redis://host:port; default with --hero: an embedded one")
	f.StringVar(&c.Redis.URL, "redis-url", "", "the same as --redis")
	f.StringVar(&c.Redis.Addr, "redis-addr", "", "address of Redis: host:port")
	h := &c.Hero
	f.StringVar(&h.API.HTTPIP, "api-http-ip", h.API.HTTPIP, "address of the coordinator")
	f.IntVar(&h.API.HTTPPort, "api-http-port", h.API.HTTPPort, "port of the coordinator")
	f.StringVar(&h.API.WSIP, "api-ws-ip", h.API.WSIP, "address of the coordinator's WebSocket")
	f.IntVar(&h.API.WSPort, "api-ws-port", h.API.WSPort, "port of the coordinator's WebSocket")
	f.StringVar(&h.Mycelium.IP, "mycelium-ip", h.Mycelium.IP, "address of Mycelium")
	f.IntVar(&h.Mycelium.Port, "mycelium-port", 0, fmt.Sprintf("port of Mycelium's API (%d, or %d for REST)", node.MyceliumPort, node.MyceliumRESTPort))
	f.StringVar(&h.Mycelium.URL, "mycelium-url", "", "URL of Mycelium's API (MYCELIUM_URL)")
	f.StringVar(&h.Mycelium.Protocol, "mycelium-protocol", h.Mycelium.Protocol, "rpc or rest")
}

// welcomeHero says where the Hero systems are.
func (t *terminal) welcomeHero(h node.HeroRunning) {
	fmt.Fprintf(t.out, "  hero     coordinator http://%s and ws://%s\n", h.Coordinator, h.WebSocket)
	fmt.Fprintf(t.out, "  redis    %s\n", h.Redis)
	switch {
	case h.StandIn != nil:
		fmt.Fprintf(t.out, "  mycelium %s (a stand-in of this process, not Mycelium: it reaches this machine only)\n", h.Mycelium)
		fmt.Fprintf(t.out, "           this node: key %s  ip %s\n", h.StandIn.Key(), h.StandIn.IP())
	case h.Mycelium != "":
		fmt.Fprintf(t.out, "  mycelium %s\n", h.Mycelium)
	}
	if h.Runner != 0 {
		fmt.Fprintf(t.out, "  runner   %d, for %s\n", h.Runner, list(h.Scripts))
	}
}

// heroSuggestions are commands that lead to a flow that runs: who, where, and by what.
func heroSuggestions(h node.HeroRunning) []string {
	at := ""
	if h.Coordinator != coordinator.DefaultHTTPAddr {
		at = " --coordinator http://" + h.Coordinator
	}
	out := []string{
		`edda hero call actor.create '{"actor": {"id": 12, "pubkey": "", "address": []}}'` + at,
		`edda hero call context.create '{"context": {"id": 7, "admins": [12], "readers": [], "executors": []}}'` + at,
	}
	if h.Runner != 0 {
		out = append(out, fmt.Sprintf(`edda hero call runner.create '{"context_id": 7, "caller_id": 12, "runner": {"id": %d, "local": true}}'%s`, h.Runner, at))
	}
	return append(out, "edda hero flow create FILE --start"+at+"    # edda hero flow create --help shows a FILE")
}

// profiles writes CPU profiles for the benchmark. An input line names the file of a new
// profile; an empty line ends it. It returns at the end of its input.
func profiles(in io.Reader, complain func(error)) {
	var file *os.File
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var err error
		if name := lines.Text(); name != "" {
			file, err = beginProfile(name)
		} else {
			err = endProfile(file)
			file = nil
		}
		if err != nil {
			complain(fmt.Errorf("profile: %w", err))
		}
	}
}

// unfinished is the suffix of a profile that is being written.
const unfinished = ".part"

func beginProfile(name string) (*os.File, error) {
	f, err := os.Create(name + unfinished)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return f, nil
}

// endProfile renames a complete profile.
func endProfile(f *os.File) error {
	if f == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.Name()[:len(f.Name())-len(unfinished)])
}
