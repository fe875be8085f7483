-- Put before every script that needs the time. The server's, unless a test holds it still: ARGV[1], in microseconds.
local function now_us()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Whole numbers as text. What Lua does by itself cuts them to fourteen digits.
local function text(number)
  return string.format('%.0f', number)
end

-- Is what lies at the key over by the time of this step? The server throws keys away by its own clock, in its own time.
local function is_over(key, now)
  local expires = redis.call('PEXPIRETIME', key)
  return expires >= 0 and expires <= now
end

