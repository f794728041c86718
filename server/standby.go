package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"edda/internal/logthrottle"
)

const (
	// forwardedHeader names the standby that forwards a call. A standby refuses a call that has it, so a
	// call makes one hop and never a loop.
	forwardedHeader = "Edda-Forwarded"
	// ownerDial bounds the connection to the owner: nodes are near each other.
	ownerDial = 2 * time.Second
	// ownerHandshake bounds its TLS handshake.
	ownerHandshake = 5 * time.Second
	// ownerAnswer bounds the wait for the headers of an answer. An owner gives up before that.
	ownerAnswer = writeTimeout + 5*time.Second
	// ownerSilence is how long an answer that has begun may pause. It is far above the progress lines of a
	// long call.
	ownerSilence = 2 * time.Minute
	// ownerLook is how often a standby looks for a new owner, to end the calls that wait for the old one.
	ownerLook = time.Second
	// ownerIdle is the number of idle connections to the owner, and ownerIdleFor their time: shorter than
	// the owner's idleTimeout, so that the owner closes none that is about to be used.
	ownerIdle    = 64
	ownerIdleFor = idleTimeout / 2
)

// StandbyOptions configure the server of a standby. Status, Drain and Cluster are required. Of Options those of addresses
// and callers count, and Build, Log, Metrics, Register, Cluster, Front and Shard. Of Cluster only Status and Owner are
// called.
type StandbyOptions struct {
	Options

	// Status is the Status of a Process.
	Status func(ctx context.Context) ProcessStatus
	// Drain begins the stop of this node. It is the only act that a standby does not forward.
	Drain func(ctx context.Context, who Operator) Drain
	// Node is the name of this node.
	Node string
	// Client authenticates the owner's URL, and this node to it if the owner wants certificates of its
	// clients; nil means the system's authorities.
	Client *tls.Config
}

// NewStandby makes the server of a node that does not own the store; it does not listen yet. It answers the
// probes, GET /cluster and POST /admin/drain itself, and forwards all other calls to the owner, one hop far.
//
// It authenticates a caller by the same tokens as the owner does, so that nobody without one costs the owner a
// request. The rights, the tenant and the audit's name of the caller are the owner's to judge: headers pass as they
// are. A caller that only its certificate authenticates is redirected to the owner, because the owner would
// see the certificate of this node.
//
// GET /ready is the NotReady of Status. A standby that follows the owner should be ready: it answers every call by
// forwarding it, and an update of a StatefulSet or a disruption budget must count it. That holds also while no node
// owns the store, because a 503 that says so helps a client more than a service without endpoints. A node that has
// no copy yet should not be ready, so that an update goes on only when the copy is there.
func NewStandby(o StandbyOptions) (*Server, error) {
	if o.Status == nil || o.Cluster == nil || o.Drain == nil {
		return nil, errors.New("a standby's server needs a status, a cluster and a drain")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o.Options, status: o.Status, forward: newForwarder(o)}
	s.routes = &routes{mux: http.NewServeMux(), allow: s.allowed}
	config := describe(o.Build)
	config.OpenAPIPath, config.SchemasPath = "", "" // the owner describes the API
	s.api = humago.New(s.routes, config)
	s.probes(s.routes)
	s.clusterStatus()
	s.drain(o.Drain)
	s.routes.Handle("/", s.forward)
	s.servers(s.oneShard(s.routes))
	return s, nil
}

// forwarder forwards calls to the owner.
type forwarder struct {
	node      string
	tokens    bool // callers are authenticated
	owner     func() (string, bool)
	transport *http.Transport
	failures  *logthrottle.Throttle
	log       *log.Logger

	mu   sync.Mutex // guards term
	term ownerTerm
}

// ownerTerm is the time in which one URL is the owner's. Its context ends when another URL is.
type ownerTerm struct {
	text   string
	url    *url.URL
	ctx    context.Context
	cancel context.CancelFunc
}

func newForwarder(o StandbyOptions) *forwarder {
	return &forwarder{
		node: o.Node, tokens: o.Tokens != nil, owner: o.Cluster.Owner,
		log:      log.New(io.Discard, "", 0), // that an answer broke off shows at the client, whose connection is cut
		failures: logthrottle.New(o.Log, "a call could not be forwarded to the owner"),
		transport: &http.Transport{
			// No Proxy: a call between nodes carries a caller's token. HTTP/1.1 only, because its connections
			// carry one call each, so a backup holds up no other call.
			DialContext: (&net.Dialer{Timeout: ownerDial}).DialContext, TLSClientConfig: o.Client.Clone(),
			TLSHandshakeTimeout: ownerHandshake, ResponseHeaderTimeout: ownerAnswer, DisableCompression: true,
			MaxIdleConns: ownerIdle, MaxIdleConnsPerHost: ownerIdle, IdleConnTimeout: ownerIdleFor, MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// run ends calls that wait for a replaced owner, until ctx ends.
func (f *forwarder) run(ctx context.Context) error {
	tick := time.NewTicker(ownerLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = f.now()
		case <-ctx.Done():
			if _, err := f.now(); err != nil { // this node may be about to take over: nobody would answer
				f.end()
			}
			return nil
		}
	}
}

// now returns the term of the owner. A new owner ends the term of the one before, and with it the calls that
// wait for its answer. A time without an owner ends no term, because the owner may only be out of this node's sight.
func (f *forwarder) now() (ownerTerm, error) {
	text, ok := f.owner()
	if !ok {
		return ownerTerm{}, errors.New("no node of the cluster owns the store now: GET /cluster and edda cluster status show the nodes")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term.text == text {
		return f.term, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ownerTerm{}, fmt.Errorf("the owner of the store advertises %.200q, which is no URL", text)
	}
	if f.term.cancel != nil {
		f.term.cancel()
	}
	f.term = ownerTerm{text: text, url: u}
	f.term.ctx, f.term.cancel = context.WithCancel(context.Background())
	return f.term, nil
}

// end ends the calls in flight.
func (f *forwarder) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term.cancel != nil {
		f.term.cancel()
	}
	f.term = ownerTerm{}
}

// ServeHTTP forwards a call.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if forwarded(r) {
		unavailable(w, fmt.Sprintf("node %.100q has forwarded this call to %s, which does not own the store", r.Header.Get(forwardedHeader), f.node))
		return
	}
	term, err := f.now()
	if err != nil {
		unavailable(w, err.Error())
		return
	}
	if f.tokens && len(r.Header.Values("Authorization")) == 0 {
		w.Header().Set("Location", term.url.Scheme+"://"+term.url.Host+r.URL.RequestURI())
		problem(w, http.StatusTemporaryRedirect, "a caller whose certificate says who it is calls the owner of the store itself, at "+term.text)
		return
	}
	f.pass(w, r, term)
}

// pass makes the call at the owner and streams the answer.
func (f *forwarder) pass(w http.ResponseWriter, r *http.Request, term ownerTerm) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(term.ctx, cancel)()
	answer := &passedAnswer{slowWriter: slowWriter{w, http.NewResponseController(w)}, silence: time.AfterFunc(ownerAnswer+ownerSilence, cancel)}
	defer answer.silence.Stop()
	answer.await()
	var sent atomic.Bool
	proxy := &httputil.ReverseProxy{
		Transport: f.transport, FlushInterval: -1, ErrorLog: f.log,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = term.url.Scheme, term.url.Host, term.url.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what cannot be parsed is the owner's to judge
			p.Out.Header.Set(forwardedHeader, f.node)
			// The guard of this node has compared it with the name that the browser knows, its own.
			p.Out.Header.Del("Origin")
			p.Out = p.Out.WithContext(httptrace.WithClientTrace(p.Out.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
		},
		ModifyResponse: func(*http.Response) error { f.failures.Worked(); return nil },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.failed(w, r, err, term, sent.Load())
		},
	}
	proxy.ServeHTTP(answer, r.WithContext(ctx))
}

// failed answers a call that has no answer of the owner. A call that may have reached the owner and may have changed
// something is answered 502, because a client would repeat it after a 503.
func (f *forwarder) failed(w http.ResponseWriter, r *http.Request, err error, term ownerTerm, sent bool) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit))
		return
	}
	why := "the owner of the store, at " + term.text + ", does not answer"
	switch {
	case term.ctx.Err() != nil:
		why = "the store has left its owner at " + term.text + " before it answered"
	case r.Context().Err() == nil:
		why += fmt.Sprintf(" (%v)", err)
		f.failures.Failed(err, zap.String("owner", term.text))
	}
	if sent && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		problem(w, http.StatusBadGateway, why+": it is not known whether the call was done, so look before you repeat it")
		return
	}
	unavailable(w, why+": try again")
}

// forwarded tells whether a standby forwards the call.
func forwarded(r *http.Request) bool { return len(r.Header.Values(forwardedHeader)) > 0 }

// passedAnswer is the answer of a forwarded call. It may take any time, as long as the client reads and the owner
// writes.
type passedAnswer struct {
	slowWriter
	silence *time.Timer // ends the call
}

// FlushError sends what is written, and waits for more of the owner's answer.
func (a *passedAnswer) FlushError() error {
	err := a.c.Flush()
	a.silence.Reset(ownerSilence)
	a.await()
	return err
}

// await has the deadline of the client not end the wait for the owner.
func (a *passedAnswer) await() {
	_ = a.c.SetWriteDeadline(time.Now().Add(ownerAnswer + ownerSilence + stallWait)) // a test may have no connection
}

// Unwrap lets net/http find the writer below.
func (a *passedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
