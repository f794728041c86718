package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"edda"
	"edda/access"
	"edda/internal/httpserver"
)

// right is what a route requires of its caller.
type right struct {
	open  bool        // no token
	role  access.Role // at least
	scope reach
	// widens: ?process=true changes the scope to ofProcess.
	widens bool
	// fresh: the answer is the state of instances, so the fence must be passed first.
	fresh bool
	// quick: the answer is in memory. A process that has no room for more calls gives it too.
	quick bool
}

// reach is the object of a call.
type reach int

const (
	// ofTenant: the tenant in the header x-tenant-id. The caller must serve it.
	ofTenant reach = iota
	// ofProcess: what all tenants share. The caller must serve all tenants.
	ofProcess
	// ofNobody: public data, such as the API's description.
	ofNobody
)

// rights declares the right of each route. With tokens the server refuses a route
// without a declared right, so a new route needs a line here.
func rights() map[string]right {
	probe := right{open: true, quick: true}
	reads, acts := right{role: access.Viewer, fresh: true}, right{role: access.Operator}
	shared, governs := right{role: access.Viewer, scope: ofProcess}, right{role: access.Admin, scope: ofProcess}
	says := right{role: access.Viewer, scope: ofNobody}
	const instance = "/v1/instances/{saga}/{key}"
	return map[string]right{
		"GET /live": probe, "GET /ready": probe, "GET /health": probe, "GET /metrics": probe,

		"/": says, "GET /{$}": says, "GET /docs": says, "GET /openapi.json": says, "GET /openapi.yaml": says,
		"GET /openapi-3.0.json": says, "GET /openapi-3.0.yaml": says, "GET /schemas/{schema}": says,

		"GET /info":           shared,
		"POST /admin/drain":   governs,
		"POST /admin/reload":  governs,
		"POST /admin/replay":  {role: access.Admin},
		"GET /admin/replay":   reads,
		"POST /admin/gc":      governs,
		"POST /admin/backup":  governs,
		"POST /admin/doctor":  governs,
		"POST /admin/compact": governs,

		"GET /cluster":                {role: access.Viewer, scope: ofProcess, quick: true},
		"POST /cluster/move":          governs,
		"POST /cluster/forget/{node}": governs,
		"POST /cluster/finalize":      governs,
		"GET /cluster/manifests":      {role: access.Admin, scope: ofProcess},
		"POST /cluster/manifests":     governs,

		"GET /admin/mock": shared, "POST /admin/mock/{effect}": governs,

		"POST /v1/backup":                     {role: access.Admin},
		"GET /v1/instances":                   reads,
		"GET " + instance:                     reads,
		"GET " + instance + "/history":        reads,
		"GET /v1/deadletters":                 reads,
		"GET /v1/deadletters/{id}":            reads,
		"GET /v1/held":                        reads,
		"GET /v1/parked":                      reads,
		"GET /v1/audit":                       {role: access.Viewer, widens: true, fresh: true},
		"POST /v1/deadletters/redrive":        acts,
		"POST /v1/deadletters/drop":           acts,
		"POST /v1/deadletters/skip":           acts,
		"POST /v1/deadletters/{id}/redrive":   acts,
		"POST /v1/deadletters/{id}/drop":      acts,
		"POST /v1/deadletters/{id}/skip":      acts,
		"POST /v1/events":                     acts,
		"OPTIONS /v1/events":                  acts,
		"POST " + instance + "/signal/{name}": acts,
		"POST " + instance + "/answer/{ask}":  acts,
		"POST " + instance + "/cancel":        acts,
		"POST " + instance + "/terminate":     acts,
		"POST " + instance + "/retry/{step}":  acts,
		"POST " + instance + "/skip/{step}":   acts,
	}
}

// Routes lists all routes as "METHOD /path", sorted. "/" stands for every other path,
// and "/{$}" for / itself.
// Tests that cover every route start from this list.
func Routes() []string { return slices.Sorted(maps.Keys(rights())) }

// routes is the mux and the list of its patterns. Every registered route checks its
// right.
type routes struct {
	mux   *http.ServeMux
	allow func(pattern string, next http.Handler) http.Handler
	list  []string
}

// HandleFunc registers a route that checks its right.
func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}

// Handle registers a route that checks its right.
func (r *routes) Handle(pattern string, h http.Handler) {
	r.list = append(r.list, pattern)
	r.mux.Handle(pattern, r.allow(pattern, h))
}

func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }

// allowed calls next if the caller has the right of the route. Without tokens everyone
// has every right, because the server then listens on loopback only.
func (s *Server) allowed(pattern string, next http.Handler) http.Handler {
	need, declared := rights()[pattern]
	if need.fresh && s.options.Fence != nil {
		next = s.fenced(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.options.Tokens == nil || need.open {
			if !need.open { // an open route does not protect its connection
				httpserver.Authenticated(r.Context())
			}
			next.ServeHTTP(w, r)
			return
		}
		caller, why := s.caller(r)
		if why != "" {
			unknown(w, r, why)
			return
		}
		httpserver.Authenticated(r.Context())
		if !declared {
			problem(w, http.StatusForbidden, "nobody has a right to this route")
			return
		}
		if status, why := s.refuses(need, caller, r); why != "" {
			problem(w, status, why)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
		if s.forward == nil { // of a forwarded call the owner does it, by the same token
			r.Header.Set(byHeader, signed(caller.Name, r.Header.Get(byHeader)))
		}
		if need.role == access.Admin {
			s.options.Log.Info("an admin's call", zap.String("route", pattern), zap.String("by", caller.Name))
		}
		next.ServeHTTP(w, r)
	})
}

// fenced calls next if the fence lets it. While another process may have the tenants, our store may be behind
// its store.
func (s *Server) fenced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.options.Fence(r.Context()); err != nil {
			unavailable(w, fmt.Sprintf("the state of instances may be old: %v", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// callerKey is the context key of the caller.
type callerKey struct{}

// everywhere refuses a caller that is bound to tenants. Without tokens no caller is.
func everywhere(ctx context.Context) error {
	if c, ok := ctx.Value(callerKey{}).(access.Caller); ok && !c.Everywhere() {
		return huma.Error403Forbidden(bound(c))
	}
	return nil
}

func bound(c access.Caller) string {
	return fmt.Sprintf("%s is bound to tenants, and this is about the whole process", c.Name)
}

// widened tells whether a call asks for the whole process. It returns true for a query that
// cannot be parsed, because this check may refuse too much but never too little. The
// handlers use another parser, which does not bound the number of parameters.
func widened(r *http.Request) bool {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(q["process"], func(text string) bool {
		asked, err := strconv.ParseBool(text)
		return err != nil || asked
	})
}

const (
	tenantHeader = "X-Tenant-Id"
	byHeader     = "X-Edda-By"
	// maxNote bounds what a caller adds to its name.
	maxNote = 100
)

// caller authenticates the request; the text says why it failed. It checks the expiry,
// so that a token expires without a reload.
func (s *Server) caller(r *http.Request) (access.Caller, string) {
	c, why := s.known(r)
	if why == "" && c.Expired(time.Now()) {
		return access.Caller{}, fmt.Sprintf("%s expired at %s: ask for a new one (edda token create)", c.Name, edda.FormatTime(c.Expires))
	}
	return c, why
}

// known finds the caller of the request in the token book.
func (s *Server) known(r *http.Request) (access.Caller, string) {
	book := s.options.Tokens.Book()
	if len(r.Header.Values("Authorization")) > 0 {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if c, ok := book.Bearer(strings.TrimSpace(token)); ok && strings.EqualFold(scheme, "bearer") {
			return c, ""
		}
		return access.Caller{}, "the token is not known here"
	}
	// The certificate of a forwarded call is the standby's, and must not give a caller its rights.
	if c, ok := book.Certificate(certified(r)); ok && !forwarded(r) {
		return c, ""
	}
	return access.Caller{}, "show a token in the header authorization: Bearer TOKEN (--token-file FILE or EDDA_TOKEN_FILE)"
}

// certified returns the names in the verified certificate of the client.
func certified(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	leaf := r.TLS.VerifiedChains[0][0]
	names := append([]string{}, leaf.DNSNames...)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	if leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	return names
}

func unknown(w http.ResponseWriter, r *http.Request, why string) {
	challenge := `Bearer realm="edda"`
	if r.Header.Get("Authorization") != "" {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	problem(w, http.StatusUnauthorized, why)
}

// refuses says why an authenticated caller may not call. The text is about the caller
// only, so that it reveals nothing about what exists.
func (s *Server) refuses(need right, c access.Caller, r *http.Request) (int, string) {
	if !c.Role.Includes(need.role) {
		return http.StatusForbidden, fmt.Sprintf("%s is %s, and this takes the role %s", c.Name, articled(c.Role), need.role)
	}
	scope := need.scope
	if need.widens && widened(r) {
		scope = ofProcess
	}
	switch scope {
	case ofNobody:
		return 0, ""
	case ofProcess:
		if !c.Everywhere() {
			return http.StatusForbidden, bound(c)
		}
		return 0, ""
	}
	status, why := s.refusesTenant(c, r)
	if need.widens && why == unnamedTenant {
		why = unnamedAudit
	}
	return status, why
}

// articled returns a role with its article.
func articled(r access.Role) string {
	if r == access.Viewer {
		return "a " + string(r)
	}
	return "an " + string(r)
}

// unnamedTenant answers a call without a tenant. It says what to do over HTTP and on the
// command line.
const unnamedTenant = "name the tenant in the header x-tenant-id (--tenant or EDDA_TENANT)"

// unnamedAudit is unnamedTenant for a list that has a part of the whole process.
const unnamedAudit = unnamedTenant + ", or list what concerns all tenants with process=true (--process)"

func (s *Server) refusesTenant(c access.Caller, r *http.Request) (int, string) {
	said := r.Header.Values(tenantHeader)
	if len(said) > 1 {
		return http.StatusBadRequest, "x-tenant-id: name one tenant"
	}
	tenant := r.Header.Get(tenantHeader)
	if tenant == "" {
		tenant = s.options.Tenant
	}
	if tenant == "" && !s.options.NoTenancy {
		return http.StatusUnprocessableEntity, unnamedTenant
	}
	if !c.Serves(tenant) {
		return http.StatusForbidden, fmt.Sprintf("%s may not act for the tenant %q", c.Name, tenant)
	}
	return 0, ""
}

// signed returns the caller's name for the audit: the token's name, and in parentheses
// the name that the caller gives. A token's name has neither space nor parenthesis.
func signed(name, note string) string {
	if note == "" {
		return name
	}
	return fmt.Sprintf("%s (%.*s)", name, maxNote, note)
}
