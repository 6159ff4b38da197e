"""What users call: functions and operators that build the operations of the room above."""
