package httpeffect

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"edda/effects/dial"
)

// signpost sends /<status> to wherever the query says.
func signpost(w http.ResponseWriter, r *http.Request) {
	if status, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(status)
	}
}

func to(s *shop, status int, where string) string {
	return s.URL + "/" + strconv.Itoa(status) + "?to=" + url.QueryEscape(where)
}

func TestRedirects(t *testing.T) {
	near, far := open(t), open(t)
	near.answer, far.answer = signpost, signpost
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, tt := range []struct {
		name, method, url string
		status            int
		at                *shop // where the call ends
		sees              string
	}{
		{"get moved", "GET", to(near, 301, "/done"), 200, near, "GET key auth body"},
		{"head found", "HEAD", to(near, 302, "/done"), 200, near, "HEAD key auth body"},
		{"post moved", "POST", to(near, 301, "/done"), 301, near, "POST key auth body"},
		{"post found", "POST", to(near, 302, "/done"), 302, near, "POST key auth body"},
		{"delete found", "DELETE", to(near, 302, "/done"), 302, near, "DELETE key auth body"},
		{"post, see other", "POST", to(near, 303, "/done"), 200, near, "GET key auth"},
		{"head, see other", "HEAD", to(near, 303, "/done"), 200, near, "HEAD key auth"},
		{"post again", "POST", to(near, 307, "/done"), 200, near, "POST key auth body"},
		{"put again", "PUT", to(near, 308, "/done"), 200, near, "PUT key auth body"},
		{"get again", "GET", to(near, 308, "/done"), 200, near, "GET key auth body"},
		{"absolute", "GET", to(near, 307, near.URL+"/done"), 200, near, "GET key auth body"},
		{"get elsewhere", "GET", to(near, 302, far.URL+"/done"), 200, far, "GET"},
		{"post elsewhere", "POST", to(near, 307, far.URL+"/done"), 307, near, "POST key auth body"},
		{"delete elsewhere", "DELETE", to(near, 308, far.URL+"/done"), 308, near, "DELETE key auth body"},
		{"see other elsewhere", "POST", to(near, 303, far.URL+"/done"), 200, far, "GET"},
		{"elsewhere with a user", "GET", to(near, 302, strings.Replace(far.URL, "://", "://u:p@", 1)+"/done"), 200, far, "GET"},
		{"there and back", "GET", to(near, 302, to(far, 302, near.URL+"/done")), 200, near, "GET"},
		{"three hops", "GET", to(near, 302, to(near, 302, to(near, 302, "/done"))), 200, near, "GET key auth body"},
		{"four hops", "GET", to(near, 302, to(near, 302, to(near, 302, to(near, 302, "/done")))), 302, near, "GET key auth body"},
		{"nowhere", "GET", to(near, 302, ""), 302, near, "GET key auth body"},
		{"no url", "GET", to(near, 302, "http://[::1"), 302, near, "GET key auth body"},
		{"another scheme", "GET", to(near, 302, "ftp://pay/"), 302, near, "GET key auth body"},
		{"not modified", "GET", to(near, 304, "/done"), 304, near, "GET key auth body"},
		{"multiple choices", "GET", to(near, 300, "/done"), 300, near, "GET key auth body"},
	} {
		r, err := call(t, p, map[string]any{
			"method": tt.method, "url": tt.url, "redirects": 3, "raw": "text",
			"headers": map[string]any{"Authorization": "s3cret", "Traceparent": "t", "Host": strings.TrimPrefix(near.URL, "http://")},
		})
		if err != nil || r.Status != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.name, r.Status, err, tt.status)
		}
		if got := tt.at.asked(); got != tt.sees {
			t.Errorf("%s: the last saw %q, want %q", tt.name, got, tt.sees)
		}
	}
}

// asked is what of a call was in the last request.
func (s *shop) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{s.last.Method}
	for _, h := range []struct{ name, word string }{{"Idempotency-Key", "key"}, {"Authorization", "auth"}, {"Referer", "referer"}} {
		if s.last.Header.Get(h.name) != "" {
			out = append(out, h.word)
		}
	}
	if s.last.Host != s.Listener.Addr().String() {
		out = append(out, "host "+s.last.Host)
	}
	if s.body != "" {
		out = append(out, "body")
	} else if s.last.Header.Get("Content-Type") != "" {
		out = append(out, "type")
	}
	return strings.Join(out, " ")
}

func TestRedirectsAreOffUnlessAskedFor(t *testing.T) {
	s := open(t)
	s.answer = signpost
	for _, config := range []map[string]any{{}, {"redirects": 0}} {
		config["method"], config["url"] = "GET", to(s, 302, "/done")
		r, err := call(t, provider(t, dial.Options{AllowLoopback: true}), config)
		if err != nil || r.Status != 302 || r.Headers["location"] != "/done" {
			t.Errorf("%v: %+v %v", config, r, err)
		}
	}
	if n := s.total(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestRedirectsPassTheGuard: the first host is listed, where it leads is not.
func TestRedirectsPassTheGuard(t *testing.T) {
	near, far := open(t), open(t)
	near.answer = signpost
	p := provider(t, dial.Options{Allow: []string{strings.TrimPrefix(near.URL, "http://")}})
	for _, where := range []string{
		far.URL, strings.Replace(far.URL, "127.0.0.1", "localhost", 1), "http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/",
		"http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0177.0.0.1/", "http://0.0.0.0/", "https://127.0.0.1/",
	} {
		_, err := call(t, p, map[string]any{"method": "GET", "url": to(near, 302, where), "redirects": 5})
		if class(err) != unknowing || !strings.Contains(err.Error(), "effects.allow") && !strings.Contains(err.Error(), "neither a name nor an address") {
			t.Errorf("%s: %s, %v", where, class(err), err)
		}
	}
	if n := far.total(); n != 0 {
		t.Errorf("the far side saw %d requests", n)
	}
}

func TestARedirectThatLeadsToNobodyMayHaveBeenDone(t *testing.T) {
	s := open(t)
	s.answer = signpost
	_, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": to(s, 303, "http://"+nobody(t)), "redirects": 1})
	if class(err) != unknown {
		t.Errorf("%s: %v", class(err), err)
	}
}

// TestRedirectsNeverLeaveTLS, nor do our certificates go to another host.
func TestRedirectsNeverLeaveTLS(t *testing.T) {
	plain := open(t)
	near, far := openTLS(t, nil), openTLS(t, &tls.Config{ClientAuth: tls.RequestClientCert})
	near.answer, far.answer = signpost, nil
	p := provider(t, dial.Options{AllowLoopback: true})
	cert, key := ours509(t)
	config := map[string]any{"method": "GET", "url": to(near, 302, plain.URL), "redirects": 3, "tls": map[string]any{"ca": near.ca(), "cert": cert, "key": key, "server_name": "example.com"}}
	if r, err := call(t, p, config); err != nil || r.Status != 302 || plain.total() != 0 {
		t.Errorf("from https to http: %+v %v", r, err)
	}
	config["url"] = to(near, 302, far.URL)
	if r, err := call(t, p, config); err != nil || r.Status != 200 {
		t.Fatalf("to another https: %+v %v", r, err)
	}
	if seen := far.last.TLS; len(seen.PeerCertificates) != 0 || seen.ServerName != "" {
		t.Errorf("the far side was shown %d certificates and the name %q", len(seen.PeerCertificates), seen.ServerName)
	}
	plain.answer = signpost
	delete(config, "tls")
	config["url"], config["tls"] = to(plain, 302, far.URL), map[string]any{"ca": far.ca()}
	if r, err := call(t, p, config); err != nil || r.Status != 200 {
		t.Errorf("from http to https: %+v %v", r, err)
	}
}
