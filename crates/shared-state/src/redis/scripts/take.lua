-- Takes from several limits or from none: the generic cell rate algorithm, `kernel::resilience::limiter`.
--
-- KEYS the limits      ARGV 1 clock  2 how many  3 `take` or `peek`  4… interval in microseconds and burst of each limit
-- Answers `allowed`, remaining and microseconds until all is there again, of the limit with the fewest left; or `refused`, the
-- place of the limit with the longest wait, from 1, and that wait, empty for ever.
local now = now_us()
local count = tonumber(ARGV[2])
local stands = {}
local fewest, reset
local refused, longest

for at, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2 * at + 2]), tonumber(ARGV[2 * at + 3])
  local stand = stands[key] or tonumber(redis.call('GET', key) or 0)
  if count > burst then
    if not refused or longest then
      refused, longest = at, nil
    end
  else
    local ahead = math.max(stand, now) + interval * count - now
    local tolerance = interval * burst
    if ahead > tolerance then
      if not refused or (longest and ahead - tolerance > longest) then
        refused, longest = at, ahead - tolerance
      end
    else
      local remaining = math.min(math.floor((tolerance - ahead) / interval), 4294967295)
      if not fewest or remaining < fewest then
        fewest, reset = remaining, ahead
      end
      stands[key] = now + ahead
    end
  end
end

if refused then
  return { 'refused', text(refused), longest and text(longest) or '' }
end
if ARGV[3] == 'take' then
  for key, stand in pairs(stands) do
    -- What lies in the past is the same as nothing.
    redis.call('SET', key, text(stand), 'PXAT', text(math.ceil(stand / 1000) + 1))
  end
end
return { 'allowed', text(fewest or 4294967295), text(reset or 0) }
