time.sleep(0.3)
done({"letters per word": "%.2f" % (get("letters") / get("words"))})
