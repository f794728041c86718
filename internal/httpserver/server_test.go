package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// open runs a server whose answer waits until the test lets it go, and returns with
// the request under way.
func open(t *testing.T, o Options) (d *Server, let chan struct{}, answer chan string, stop func() error) {
	t.Helper()
	let, begun, answer := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	d = New("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Authenticated(r.Context())
		close(begun)
		<-let
		_, _ = io.WriteString(w, "late")
	}), o)
	if err := d.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	go func() { answer <- ask(d.Addr()) }()
	<-begun
	return d, let, answer, func() error { cancel(); return <-ended }
}

// ask is what the address answers, or the error.
func ask(addr string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestAStopLetsAnswersUnderWayGoOut(t *testing.T) {
	d, let, answer, stop := open(t, Options{Stop: time.Minute})
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for free(d.Addr()) != nil { // it takes nobody any more, and still is there
		select {
		case err := <-ended:
			t.Fatalf("it ended before its answer: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	close(let)
	if got := <-answer; got != "late" {
		t.Errorf("answered %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		err = l.Close()
	}
	return err
}

func TestAStopCutsWhatIsNotReadyInTime(t *testing.T) {
	for name, o := range map[string]Options{"no time": {}, "a short time": {Stop: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			_, let, answer, stop := open(t, o)
			if err := stop(); err != nil {
				t.Errorf("ended with %v", err)
			}
			if got := <-answer; !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
				t.Errorf("answered %q", got)
			}
			close(let)
		})
	}
}

func TestMoreConnectionsThanAllowedWait(t *testing.T) {
	d, let, first, stop := open(t, Options{Connections: 1, Stop: time.Minute})
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "bad request\r\n\r\n") // who is let in is answered at once
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("a second one was let in: %d bytes", n)
	}
	close(let)
	if got := <-first; got != "late" {
		t.Errorf("answered %q", got)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if text, err := io.ReadAll(conn); !strings.HasPrefix(string(text), "HTTP/1.1 400") {
		t.Errorf("when there was room: %q %v", text, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAnAddressIsTakenOnceAndGivenBack(t *testing.T) {
	d := New("127.0.0.1:0", http.NotFoundHandler(), Options{})
	if err := d.Listen(); err != nil {
		t.Fatal(err)
	}
	addr := d.Addr()
	if err := d.Listen(); err != nil || d.Addr() != addr {
		t.Errorf("again: %s, %v", d.Addr(), err)
	}
	if err := New(addr, nil, Options{}).Listen(); err == nil || !strings.Contains(err.Error(), "listen on "+addr) {
		t.Errorf("a second server: %v", err)
	}
	if err := d.Close(); err != nil || d.Close() != nil || free(addr) != nil {
		t.Errorf("closed: %v", err)
	}
}

func TestWithoutAnAddressItDoesNothing(t *testing.T) {
	d := New("", nil, Options{})
	if d.Listen() != nil || d.Run(t.Context()) != nil || d.Close() != nil || d.Addr() != "" {
		t.Error("it did something")
	}
}

func TestARunThatLosesItsAddressSaysSo(t *testing.T) {
	d := New("127.0.0.1:0", nil, Options{})
	if err := d.Listen(); err != nil {
		t.Fatal(err)
	}
	_ = d.listener.Close()
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serve "+d.Addr()) {
		t.Errorf("ended with %v", err)
	}
}

func TestForeignNamesAndPagesAreRefused(t *testing.T) {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	h := SameHost(SameSite(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), refuse), refuse)
	for name, test := range map[string]struct {
		host, site string
		want       int
	}{
		"an address": {"127.0.0.1:80", "", 200}, "one of six": {"[::1]:80", "", 200}, "this machine": {"localhost", "same-origin", 200},
		"a name": {"evil.example", "", 421}, "a page": {"127.0.0.1", "cross-site", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Host = test.host
		r.Header.Set("Sec-Fetch-Site", test.site)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestAnyWebPageReads: a page of another site could have the server do all that a GET
// does, unseen.
func TestAnyWebPageReads(t *testing.T) {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	h := SameSite(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), refuse)
	const here = "127.0.0.1:8700"
	for name, test := range map[string]struct {
		headers map[string]string
		want    int
	}{
		"a program":                 {nil, 200},
		"a picture":                 {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		"another port":              {map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403},
		"a frame":                   {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		"a link":                    {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		"typed":                     {map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		"our own page":              {map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://" + here}, 200},
		"an old browser":            {map[string]string{"Origin": "https://evil.example"}, 403},
		"an old browser, a sandbox": {map[string]string{"Origin": "null"}, 403},
		"an old browser, our page":  {map[string]string{"Origin": "http://" + here}, 200},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			r := httptest.NewRequest(method, "/v1/instances", nil)
			r.Host = here
			for k, v := range test.headers {
				r.Header.Set(k, v)
			}
			want := test.want
			if name == "a link" && method != http.MethodGet {
				want = 403
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s, %s: %d %s", name, method, w.Code, w.Body)
			}
		}
	}
}

func TestOnLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "a.localhost:1": false} {
		if got, err := OnLoopback(addr); got != want || err != nil {
			t.Errorf("%s: %v %v", addr, got, err)
		}
	}
	if _, err := OnLoopback("127.0.0.1"); err == nil {
		t.Error("an address without a port")
	}
}
