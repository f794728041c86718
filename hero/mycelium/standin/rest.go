package standin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxBody bounds the body of a REST request, as the original's framework does. Its JSON-RPC
// takes 10 MiB.
const maxBody = 2 << 20

// REST is the node's REST API, which Mycelium serves on port 8989.
func (n *Node) REST() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/messages", n.restPush)
	mux.HandleFunc("GET /api/v1/messages", n.restPop)
	mux.HandleFunc("POST /api/v1/messages/reply/{id}", n.restReply)
	mux.HandleFunc("GET /api/v1/messages/status/{id}", n.restStatus)
	mux.HandleFunc("GET /api/v1/admin", n.restNode)
	mux.HandleFunc("GET /api/v1/pubkey/{ip}", n.restKey)
	return n.crashing(mux)
}

func (n *Node) restPush(w http.ResponseWriter, r *http.Request) {
	wait, waits, err := number(r.URL.Query(), "reply_timeout")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m, ok := body(w, r)
	if !ok {
		return
	}
	id, sub, err := n.push(r.Context(), "", netip.Addr(*m.Dst), m.Topic, *m.Payload, waits)
	cut(r.Context(), err)
	switch {
	case errors.Is(err, errTopic):
		w.WriteHeader(http.StatusBadRequest)
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	case !waits:
		answer(w, http.StatusCreated, onlyID{id})
	default:
		n.restAwait(w, r, id, sub, wait)
	}
}

func (n *Node) restAwait(w http.ResponseWriter, r *http.Request, id string, sub *subscriber, wait uint64) {
	m, ok, err := n.reply(r.Context(), sub, duration(wait))
	cut(r.Context(), err)
	if !ok {
		answer(w, http.StatusRequestTimeout, onlyID{id})
		return
	}
	answer(w, http.StatusOK, n.incoming(m))
}

func (n *Node) restPop(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	wait, _, err := number(q, "timeout")
	peek := q.Get("peek")
	if err != nil || peek != "" && peek != "true" && peek != "false" {
		http.Error(w, "peek is true or false, timeout a number", http.StatusBadRequest)
		return
	}
	var topic *[]byte
	if q.Has("topic") {
		raw, err := decode64(q.Get("topic"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		topic = &raw
	}
	m, ok, err := n.pop(r.Context(), peek == "true", topic, duration(wait))
	cut(r.Context(), err)
	if err != nil || !ok {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, http.StatusOK, n.incoming(m))
}

func (n *Node) restReply(w http.ResponseWriter, r *http.Request) {
	id, err := messageID(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m, ok := body(w, r)
	if !ok {
		return
	}
	_, _, err = n.push(r.Context(), id, netip.Addr(*m.Dst), nil, *m.Payload, false)
	cut(r.Context(), err)
	w.WriteHeader(http.StatusNoContent)
}

func (n *Node) restStatus(w http.ResponseWriter, r *http.Request) {
	id, err := messageID(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, state, err := n.status(r.Context(), id)
	if err != nil || state == stateGone {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, n.info(out, state))
}

func (n *Node) restNode(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, n.about()) }

func (n *Node) restKey(w http.ResponseWriter, r *http.Request) {
	ip, err := netip.ParseAddr(r.PathValue("ip"))
	if err != nil {
		http.Error(w, "Invalid URL: "+err.Error(), http.StatusBadRequest)
		return
	}
	key := n.bus.keyAt(ip)
	if key == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, publicKey{key})
}

// body reads the message of a request. It answers errors with the original's statuses.
func body(w http.ResponseWriter, r *http.Request) (outgoing, bool) {
	var m outgoing
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		http.Error(w, "Expected request with `Content-Type: application/json`", http.StatusUnsupportedMediaType)
		return m, false
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		http.Error(w, "length limit exceeded", http.StatusRequestEntityTooLarge)
	case err != nil || !json.Valid(raw):
		http.Error(w, "Failed to parse the request body as JSON", http.StatusBadRequest)
	default:
		if err = json.Unmarshal(raw, &m); err == nil {
			err = m.validate()
		}
		if err == nil {
			return m, true
		}
		http.Error(w, "Failed to deserialize the JSON body into the target type: "+err.Error(), http.StatusUnprocessableEntity)
	}
	return m, false
}

// number reads an optional parameter that is a number.
func number(q url.Values, name string) (n uint64, given bool, err error) {
	if !q.Has(name) {
		return 0, false, nil
	}
	n, err = strconv.ParseUint(q.Get(name), 10, 64)
	return n, true, err
}

func answer(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the client is gone
}
