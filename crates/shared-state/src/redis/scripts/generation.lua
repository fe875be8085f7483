-- The number of the last change, or nothing.      KEYS[1] the generation
return redis.call('GET', KEYS[1])
