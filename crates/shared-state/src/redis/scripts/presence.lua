-- Who is there.      KEYS 1 the replicas (hash)      ARGV 1 clock  2 `announce` or `present`  3 name  4 word  5 life in ms  6 most
-- An entry is `seen until word`. What is over is thrown away by whoever comes by.
local now = math.floor(now_us() / 1000)
local last = now
local there = {}
local many = 0
local all = redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  local till = tonumber(string.match(all[at + 1], '^%d+ (%d+) '))
  if not till or till <= now then
    redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] ~= ARGV[3] then
    many = many + 1
    last = math.max(last, till)
    there[#there + 1] = all[at]
    there[#there + 1] = all[at + 1]
  elseif ARGV[2] == 'present' then
    there[#there + 1] = all[at]
    there[#there + 1] = all[at + 1]
  end
end
if ARGV[2] == 'present' then
  return there
end
local life = tonumber(ARGV[5])
if life == 0 then
  redis.call('HDEL', KEYS[1], ARGV[3])
  return { 'done' }
end
if many >= tonumber(ARGV[6]) then
  return { 'full' }
end
redis.call('HSET', KEYS[1], ARGV[3], text(now) .. ' ' .. text(now + life) .. ' ' .. ARGV[4])
redis.call('PEXPIREAT', KEYS[1], text(math.max(last, now + life)))
return { 'done' }
