time.sleep(0.2)
done({"title": "a saga of %d words" % get("total")})
