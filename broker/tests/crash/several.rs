//! Several clients at once: their calls take turns as the dice say, so that a seed is the same programme every time.
//!
//! One writes records. One has transactions, between whose calls the others' come. One is a member of a group and commits. Two
//! producers may also be under way together; what they write then shares a sync, or not, as threads run.

use std::net::SocketAddr;

use crate::client::{Client, Failure, Identity, Membership};
use crate::dice::Dice;
use crate::sim_disk::SimDisk;
use crate::{GROUP, Promised, TOPICS, TRANSACTIONAL_ID, create_topics};

/// Runs so many turns. Ends at the first failure of any client; everything said until then is noted.
pub(crate) fn work(
    address: SocketAddr,
    disk: &SimDisk,
    dice: &mut Dice,
    promised: &mut Promised,
    next: &mut u64,
    turns: usize,
) -> Result<(), Failure> {
    let connect = || Client::connect(address, disk.clone());
    let mut plain = connect();
    create_topics(&mut plain)?;
    let mut transactions = Transactions { client: connect(), producer: None, open: None };
    let mut member = Member { client: connect(), place: None };
    for _ in 0..turns {
        *next += 1;
        match dice.roll(7) {
            0 | 1 => {
                let topic = TOPICS[dice.roll(2)];
                begin_record(&mut plain, topic, *next)?;
                end_record(&mut plain, topic, *next, promised)?;
            }
            2 => member.turn(*next, promised)?,
            3 => {
                let topic = TOPICS[dice.roll(2)];
                begin_record(&mut plain, topic, *next)?;
                let is_under_way = transactions.begin_record()?;
                end_record(&mut plain, topic, *next, promised)?;
                if is_under_way {
                    transactions.end_record()?;
                }
            }
            _ => transactions.turn(dice, *next, promised)?,
        }
    }
    Ok(())
}

fn begin_record(client: &mut Client, topic: &str, number: u64) -> Result<(), Failure> {
    let value = number.to_string();
    client.begin_produce(topic, &value, &value, None)
}

fn end_record(client: &mut Client, topic: &'static str, number: u64, promised: &mut Promised) -> Result<(), Failure> {
    let offset = client.produced()?;
    promised.records.insert((topic, offset), number.to_string());
    Ok(())
}

struct Transactions {
    client: Client,
    /// Its identity and the next sequence number, which is the same in each topic.
    producer: Option<(Identity, i32)>,
    open: Option<Open>,
}

/// A transaction that has begun.
struct Open {
    value: String,
    /// Topics that have its record.
    written: usize,
}

impl Transactions {
    /// The next call of a transaction: begin, a record in each topic, end.
    fn turn(&mut self, dice: &mut Dice, number: u64, promised: &mut Promised) -> Result<(), Failure> {
        if self.open.is_none() {
            return self.begin(number, promised);
        }
        if self.begin_record()? {
            return self.end_record();
        }
        self.end(dice.roll(3) > 0, promised)
    }

    fn begin(&mut self, number: u64, promised: &mut Promised) -> Result<(), Failure> {
        if self.producer.is_none() {
            self.producer = Some((self.client.init(TRANSACTIONAL_ID)?, 0));
        }
        let Some((identity, _)) = &self.producer else { return Ok(()) };
        let value = number.to_string();
        promised.undecided.push(value.clone());
        self.client.add(TRANSACTIONAL_ID, identity, &TOPICS)?;
        self.open = Some(Open { value, written: 0 });
        Ok(())
    }

    /// Sends the record that is missing; whether there is one.
    fn begin_record(&mut self) -> Result<bool, Failure> {
        let (Some(open), Some((identity, sequence))) = (&self.open, &self.producer) else { return Ok(false) };
        let Some(topic) = TOPICS.get(open.written) else { return Ok(false) };
        let transaction = Some((TRANSACTIONAL_ID, identity, *sequence));
        self.client.begin_produce(topic, &open.value, &open.value, transaction)?;
        Ok(true)
    }

    fn end_record(&mut self) -> Result<(), Failure> {
        self.client.produced()?;
        if let Some(open) = &mut self.open {
            open.written += 1;
        }
        Ok(())
    }

    fn end(&mut self, commit: bool, promised: &mut Promised) -> Result<(), Failure> {
        let (Some(open), Some((identity, sequence))) = (self.open.take(), &mut self.producer) else { return Ok(()) };
        self.client.end(TRANSACTIONAL_ID, identity, commit)?;
        *sequence += 1;
        promised.undecided.retain(|value| *value != open.value);
        let list = if commit { &mut promised.committed } else { &mut promised.aborted };
        list.push(open.value);
        Ok(())
    }
}

struct Member {
    client: Client,
    place: Option<Membership>,
}

impl Member {
    /// Joins the group, or commits an offset.
    fn turn(&mut self, number: u64, promised: &mut Promised) -> Result<(), Failure> {
        let Some(place) = &self.place else {
            // Being a static member, it takes the place that a broker before this one may have remembered.
            self.place = Some(self.client.join(GROUP, "i", TOPICS[0])?);
            return Ok(());
        };
        let offset = number as i64;
        promised.offsets.push(offset);
        self.client.commit(GROUP, Some(place), TOPICS[0], offset)?;
        promised.acknowledged_offset = offset;
        Ok(())
    }
}
